/* One element of an array whose type is known at run time only, as a double. */
#ifndef TESTS_ELEMENTS_H
#define TESTS_ELEMENTS_H

#include <math.h>

#include "trireme/table.h"

static double element(enum tr_dtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case TR_F32: return (double)((const float *)values)[i];
    case TR_F64: return ((const double *)values)[i];
    case TR_I32: return (double)((const int32_t *)values)[i];
    case TR_I64: return (double)((const int64_t *)values)[i];
    }
    return NAN;
}

static void set_element(enum tr_dtype dtype, void *values, size_t i, double x)
{
    switch (dtype) {
    case TR_F32: ((float *)values)[i] = (float)x; break;
    case TR_F64: ((double *)values)[i] = x; break;
    case TR_I32: ((int32_t *)values)[i] = (int32_t)x; break;
    case TR_I64: ((int64_t *)values)[i] = (int64_t)x; break;
    }
}

#endif
