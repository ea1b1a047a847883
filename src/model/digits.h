/* Numbers as text, with as many digits as it takes to read them back exactly: 9 and 17 at most. */
#ifndef TR_MODEL_DIGITS_H
#define TR_MODEL_DIGITS_H

enum { TR_NUMBER_ROOM = 32 };

/* Writes the number at `at` and returns the end; no zero byte follows. f64 goes through the C library and so
 * writes what the user's language has for a point. */
char *tr_put_f32(char *at, float x);
char *tr_put_f64(char *at, double x);

#endif
