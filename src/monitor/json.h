/* Valid JSON for any text and any number. */
#ifndef TR_MONITOR_JSON_H
#define TR_MONITOR_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* tr_put_quoted() of base/escape.h; null for NULL. */
void tr_json_text(FILE *file, const char *text);

/* The fewest digits that give the same number when read; null for NaN and infinities, which JSON does not have. */
void tr_json_real(FILE *file, double number);

/* «  "name": value,» on a line of its own. */
void tr_json_text_member(FILE *file, const char *name, const char *text);
void tr_json_real_member(FILE *file, const char *name, double number);
void tr_json_count_member(FILE *file, const char *name, uint64_t number);

/* «, "name": value» after other members in a line. */
void tr_json_text_behind(FILE *file, const char *name, const char *text);
void tr_json_real_behind(FILE *file, const char *name, double number);

/* Rounds seconds to three decimals. */
double tr_milliseconds(double seconds);

/* Renders into memory, to be freed. */
typedef int tr_json_writer(FILE *file, const void *what);
int tr_json_render(tr_json_writer *write, const void *what, char **text, size_t *length);

/* Renders into the file folder/name by tr_replace_file(). */
int tr_json_replace(const char *folder, const char *name, bool durable, tr_json_writer *write,
                    const void *what);

#endif
