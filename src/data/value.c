#define _GNU_SOURCE
#include "data/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/number.h"

/* 0.d1d2d3… · 10^point, where neither the first nor the last digit is 0; 0 has no digits. */
struct decimal {
    bool negative;
    size_t n;
    long point;
    char digit[TR_VALUE_DIGITS];
};

/* False: the text is not a number. */
static bool decimal_read(const char *text, size_t n, struct decimal *d)
{
    const char *p = text, *end = text + n;
    bool any = false, behind_point = false;
    long exponent = 0;
    *d = (struct decimal){.negative = n > 0 && *p == '-'};
    if (n == 0 || n > TR_VALUE_DIGITS) return false;
    for (p += *p == '-' || *p == '+'; p < end && (tr_is_digit(*p) || (*p == '.' && !behind_point)); p++) {
        if (*p == '.') {
            behind_point = true;
            continue;
        }
        any = true;
        if (d->n > 0 || *p != '0') d->digit[d->n++] = *p;
        d->point += d->n > 0 && !behind_point;
        d->point -= d->n == 0 && behind_point;
    }
    if (!any) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool below = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (p == end || end - p > 5) return false;
        for (; p < end && tr_is_digit(*p); p++) exponent = exponent * 10 + (*p - '0');
        d->point += below ? -exponent : exponent;
    }
    while (d->n > 0 && d->digit[d->n - 1] == '0') d->n--;
    d->negative = d->negative && d->n > 0;
    return p == end;
}

const char *tr_value_number(const char *text, size_t *n, char room[TR_VALUE_ROOM])
{
    struct decimal d;
    char *to = room;
    size_t k = *text == '-';
    bool whole = *n > k && text[k] > '0'; /* the usual case: a whole number in its form */
    while (whole && k < *n && tr_is_digit(text[k])) k++;
    if ((whole && k == *n && *n <= 21) || (*n == 1 && *text == '0') || !decimal_read(text, *n, &d))
        return text;
    if (d.negative) *to++ = '-';
    if (d.n == 0) {
        *to++ = '0';
    } else if (d.point > 21 || d.point < -5) {
        *to++ = d.digit[0];
        if (d.n > 1) *to++ = '.';
        memcpy(to, d.digit + 1, d.n - 1);
        to += d.n - 1;
        to += sprintf(to, "e%ld", d.point - 1);
    } else {
        size_t before = d.point > 0 ? tr_min_size((size_t)d.point, d.n) : 0;
        if (before == 0) *to++ = '0';
        memcpy(to, d.digit, before);
        to += before;
        for (long i = (long)d.n; i < d.point; i++) *to++ = '0';
        if (before < d.n) *to++ = '.';
        for (long i = d.point; i < 0; i++) *to++ = '0';
        memcpy(to, d.digit + before, d.n - before);
        to += d.n - before;
    }
    bool same = *n == (size_t)(to - room) && memcmp(text, room, *n) == 0;
    *n = (size_t)(to - room);
    return same ? text : room;
}

static int value_compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, tr_min_size(n_a, n_b));
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

int tr_value_compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    struct decimal x, y;
    bool a_number = decimal_read(a, n_a, &x), b_number = decimal_read(b, n_b, &y);
    if (!a_number || !b_number) return a_number ? -1 : b_number ? 1 : value_compare_bytes(a, n_a, b, n_b);
    int sign_x = x.n == 0 ? 0 : x.negative ? -1 : 1, sign_y = y.n == 0 ? 0 : y.negative ? -1 : 1;
    if (sign_x != sign_y) return sign_x < sign_y ? -1 : 1;
    if (x.point != y.point) return (x.point < y.point) == (sign_x > 0) ? -1 : 1;
    return sign_x * value_compare_bytes(x.digit, x.n, y.digit, y.n);
}

bool tr_value_is_number(const char *text, size_t n, double *number)
{
    struct decimal d;
    char copy[TR_VALUE_DIGITS + 1];
    if (!decimal_read(text, n, &d)) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *number = strtod_l(copy, NULL, c);
    freelocale(c);
    return true;
}
