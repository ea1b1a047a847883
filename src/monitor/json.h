/* Members of a JSON object that any reader takes, whatever the text or number. */
#ifndef TR_MONITOR_JSON_H
#define TR_MONITOR_JSON_H

#include <stdint.h>
#include <stdio.h>

/* "text" in quotes; what is not UTF-8 becomes U+FFFD. NULL: null. */
void tr_json_text(FILE *file, const char *text);

/* The fewest digits that read back the same; NaN and infinities, which JSON has not: null. */
void tr_json_real(FILE *file, double number);

/* «  "name": value,» on a line of its own. */
void tr_json_text_member(FILE *file, const char *name, const char *text);
void tr_json_real_member(FILE *file, const char *name, double number);
void tr_json_count_member(FILE *file, const char *name, uint64_t number);

#endif
