/* JSON that any reader takes, whatever the text or number. */
#ifndef TR_MONITOR_JSON_H
#define TR_MONITOR_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* tr_put_quoted() of base/escape.h; null for NULL. */
void tr_json_text(FILE *file, const char *text);

/* The fewest digits that read back the same; NaN and infinities, which JSON has not: null. */
void tr_json_real(FILE *file, double number);

/* «  "name": value,» on a line of its own. */
void tr_json_text_member(FILE *file, const char *name, const char *text);
void tr_json_real_member(FILE *file, const char *name, double number);
void tr_json_count_member(FILE *file, const char *name, uint64_t number);

/* «, "name": value» behind others in a line. */
void tr_json_text_behind(FILE *file, const char *name, const char *text);
void tr_json_real_behind(FILE *file, const char *name, double number);

/* To three digits behind the point: of seconds, more say nothing. */
double tr_milliseconds(double seconds);

/* What `write` writes, in memory; to be freed. */
typedef int tr_json_writer(FILE *file, const void *what);
int tr_json_render(tr_json_writer *write, const void *what, char **text, size_t *length);

/* The same as the file folder/name, as tr_replace_file() does it. */
int tr_json_replace(const char *folder, const char *name, bool durable, tr_json_writer *write,
                    const void *what);

#endif
