/* Which texts of fields are equal: categories, labels, data.positive and data.missing all ask here.
 *
 * A number is its value, exactly: 1, 1.0, +1, 01 and 1e0 are equal, 0.1 and .10 too, and numbers of any length differ in their
 * last digit. Any other text, and a number of more than TR_VALUE_DIGITS characters, is a word, and is its bytes. Equal texts have
 * one form, tr_value_text(), which is compared, hashed, stored and shown.
 */
#ifndef TR_DATA_VALUE_H
#define TR_DATA_VALUE_H

#include <stdbool.h>
#include <stddef.h>

enum { TR_VALUE_DIGITS = 64, TR_VALUE_ROOM = TR_VALUE_DIGITS + 32 };

/* The form of a text of *n bytes that starts like a number; use tr_value_text(). */
const char *tr_value_number(const char *text, size_t *n, char room[TR_VALUE_ROOM]);

/* The form of a text of *n bytes, and its length: the text itself, or of a number written in another way, its form in `room`. That
 * is decimal without an exponent from 1e-6 to 1e21 (1, 0.05, 1500), otherwise as 1.5e21; without needless signs and zeros. */
static inline const char *tr_value_text(const char *text, size_t *n, char room[TR_VALUE_ROOM])
{
    bool may_be_number = *n > 0 && *n <= TR_VALUE_DIGITS && *text <= '9' && *text >= '+';
    return may_be_number ? tr_value_number(text, n, room) : text;
}

/* The order of labels, by their forms: numbers by value, then words by bytes. Less than, equal to, or greater than 0. */
int tr_value_compare(const char *a, size_t n_a, const char *b, size_t n_b);

/* Whether a form is a number, and which: the nearest double. */
bool tr_value_is_number(const char *text, size_t n, double *number);

#endif
