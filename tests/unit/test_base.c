#include "unit.h"

UNIT_CASE(an_error_keeps_its_text)
{
    ck_assert_int_eq(tr_fail(TR_ERR_DATA, "%s:%d: bad", "file", 7), TR_ERR_DATA);
    ck_assert_str_eq(tr_error_text(), "file:7: bad");
    tr_fail(TR_ERR_IO, "while writing: %s", tr_error_text());
    ck_assert_str_eq(tr_error_text(), "while writing: file:7: bad");
}

UNIT_CASE(memory_is_zeroed_and_its_lack_is_an_error)
{
    int *numbers;
    ck_ok(TR_NEW(&numbers, 1000));
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(numbers[i], 0);
    free(numbers);
    ck_fails(TR_NEW(&numbers, SIZE_MAX / 2), TR_ERR_SYSTEM, "out of memory");
}

UNIT_CASE(growing_keeps_what_was_there)
{
    int *numbers = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 10000; i++) {
        ck_ok(TR_GROW(&numbers, &capacity, (size_t)i + 1));
        numbers[i] = i;
    }
    for (int i = 0; i < 10000; i++) ck_assert_int_eq(numbers[i], i);
    free(numbers);
}

UNIT_CASE(random_streams_repeat_and_differ)
{
    struct tr_rng a, b, c;
    tr_rng_seed(&a, 1, 2, 3);
    tr_rng_seed(&b, 1, 2, 3);
    tr_rng_seed(&c, 1, 3, 2);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = tr_rng_next(&a);
        ck_assert_uint_eq(x, tr_rng_next(&b));
        same += x == tr_rng_next(&c);
    }
    ck_assert_int_eq(same, 0);
}

UNIT_CASE(random_numbers_have_the_right_moments)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 42, 0, 0);
    double uniform = 0, normal = 0, square = 0;
    int counts[7] = {0}, n = 100000;
    for (int i = 0; i < n; i++) {
        uniform += tr_rng_uniform(&rng);
        double x = tr_rng_normal(&rng);
        normal += x;
        square += x * x;
        counts[tr_rng_below(&rng, 7)]++;
    }
    ck_assert_double_eq_tol(uniform / n, 0.5, 0.01);
    ck_assert_double_eq_tol(normal / n, 0, 0.02);
    ck_assert_double_eq_tol(square / n, 1, 0.03);
    for (int i = 0; i < 7; i++) ck_assert_double_eq_tol(counts[i] * 7.0 / n, 1, 0.05);
}

UNIT_CASE(permutations_are_equally_probable)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 42, 0, 1);
    int counts[3][3] = {{0}}, n = 30000;
    for (int i = 0; i < n; i++) {
        uint32_t order[3];
        tr_rng_permutation(&rng, order, 3);
        ck_assert_uint_eq(1u << order[0] | 1u << order[1] | 1u << order[2], 7);
        for (int k = 0; k < 3; k++) counts[k][order[k]]++;
    }
    for (int k = 0; k < 9; k++) ck_assert_double_eq_tol(counts[k / 3][k % 3] * 3.0 / n, 1, 0.05);
}
