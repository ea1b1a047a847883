#include "trireme/base.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double power_of_ten(int exponent)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23,
                                 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35,
                                 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45, 1e46, 1e47,
                                 1e48, 1e49, 1e50, 1e51, 1e52, 1e53, 1e54, 1e55};
    return ten[exponent];
}

/* Computes m with 9 digits such that x = m · 10^(exponent - 8). The error is half a unit of the ninth digit; rounding of doubles
 * adds ten million times less. The distance of two floats is six times larger, so the digits read back as x. */
static uint32_t nine_digits(double x, int *exponent)
{
    int two;
    frexp(x, &two);
    int e = (int)floor((two - 1) * 0.30102999566398120); /* exponent of ten, or one less */
    double m = e <= 8 ? x * power_of_ten(8 - e) : x / power_of_ten(e - 8);
    if (m >= 999999999.5) {
        m /= 10;
        e++;
    }
    *exponent = e;
    return (uint32_t)(m + 0.5);
}

static char *put_exponent(char *at, int exponent)
{
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    unsigned e = (unsigned)abs(exponent);
    *at++ = (char)('0' + e / 10);
    *at++ = (char)('0' + e % 10);
    return at;
}

/* Formats n digits as %.9g does. The first digit has the weight 10^exponent. */
static char *put_digits(char *at, const char *digit, int n, int exponent)
{
    bool scientific = exponent < -5 || exponent > 8;
    int before = scientific ? 1 : exponent + 1; /* digits before the point */
    if (before <= 0) {
        *at++ = '0';
        *at++ = '.';
        for (int i = before; i < 0; i++) *at++ = '0';
    }
    for (int i = 0; i < n || i < before; i++) {
        if (i == before && i > 0) *at++ = '.';
        *at++ = i < n ? digit[i] : '0';
    }
    return scientific ? put_exponent(at, exponent) : at;
}

char *tr_put_f32(char *at, float x)
{
    if (signbit(x)) *at++ = '-';
    if (x == 0) {
        *at++ = '0';
        return at;
    }
    if (!isfinite(x)) return memcpy(at, isnan(x) ? "nan" : "inf", 3), at + 3;
    int exponent, n = 9;
    uint32_t m = nine_digits(fabs((double)x), &exponent);
    char digit[9];
    for (int i = 8; i >= 0; i--, m /= 10) digit[i] = (char)('0' + m % 10);
    while (n > 1 && digit[n - 1] == '0') n--;
    return put_digits(at, digit, n, exponent);
}

/* Searching for the shortest form would take three times as long. */
char *tr_put_f64(char *at, double x)
{
    if (x == 0 && !signbit(x)) {
        *at++ = '0';
        return at;
    }
    return at + snprintf(at, TR_NUMBER_ROOM, "%.17g", x);
}
