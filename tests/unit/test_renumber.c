#include "unit.h"

#include "data/matrix.h"

/* Rows of random ascending columns between lowest and lowest + range - 1. */
static void random_rows(struct tr_matrix *csr, size_t rows, uint32_t lowest, uint32_t range, uint64_t seed)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, seed, 0, 0);
    *csr = (struct tr_matrix){.rows = rows};
    ck_ok(TR_NEW(&csr->begin, rows + 1));
    ck_ok(TR_NEW(&csr->column, rows * 20));
    uint32_t step = range / 20;
    for (size_t i = 0; i < rows; i++) {
        uint64_t n = csr->begin[i], pairs = tr_rng_below(&rng, 20);
        for (uint32_t k = 0; k < pairs; k++)
            csr->column[n++] = lowest + k * step + (uint32_t)tr_rng_below(&rng, step);
        csr->begin[i + 1] = n;
    }
}

/* Keys ascend, every key occurs, and the new columns lead back to the old ones. */
static void check_renumbering(struct tr_matrix *csr, uint32_t lowest, uint32_t highest)
{
    size_t n, nonzeros = tr_matrix_nonzeros(csr);
    uint32_t *old, *keys;
    unsigned char *seen;
    ck_ok(TR_NEW(&old, nonzeros));
    if (nonzeros > 0) memcpy(old, csr->column, nonzeros * sizeof *old);
    ck_ok(tr_renumber(csr, lowest, highest, &keys, &n));
    ck_ok(TR_NEW(&seen, n));
    for (size_t i = 0; i < nonzeros; i++) {
        ck_assert_uint_lt(csr->column[i], n);
        ck_assert_uint_eq(keys[csr->column[i]], old[i]);
        seen[csr->column[i]] = 1;
    }
    for (size_t i = 0; i < n; i++) ck_assert(seen[i] && (i == 0 || keys[i - 1] < keys[i]));
    TR_FREE_ALL(seen, keys, old);
}

UNIT_CASE(dense_columns_are_ranked)
{
    for (uint32_t range = 20; range < 5000; range += 613) {
        struct tr_matrix csr;
        random_rows(&csr, 300, 1, range, range);
        check_renumbering(&csr, 1, range);
        tr_matrix_free(&csr);
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

UNIT_CASE(keys_are_sorted_and_each_is_left_once)
{
    static const size_t sizes[] = {0, 1, 2, 17, 5000};
    struct tr_rng rng;
    tr_rng_seed(&rng, 3, 0, 0);
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (uint64_t below = 1; below <= UINT32_MAX; below *= 100) {
            uint32_t *keys, *wanted;
            size_t n = sizes[s], distinct = 0;
            ck_ok(TR_NEW(&keys, n));
            ck_ok(TR_NEW(&wanted, n));
            for (size_t i = 0; i < n; i++) {
                keys[i] = (uint32_t)tr_rng_below(&rng, below);
                if (i % 3 == 2) keys[i] = UINT32_MAX - keys[i];
                wanted[i] = keys[i];
            }
            qsort(wanted, n, sizeof *wanted, by_value);
            for (size_t i = 0; i < n; i++)
                if (i == 0 || wanted[i] != wanted[i - 1]) wanted[distinct++] = wanted[i];
            ck_ok(tr_keys_sort(keys, &n));
            ck_assert_uint_eq(n, distinct);
            for (size_t i = 0; i < n; i++) ck_assert_uint_eq(keys[i], wanted[i]);
            TR_FREE_ALL(keys, wanted);
        }
}

UNIT_CASE(many_columns_of_a_wide_space_are_ranked)
{
    struct tr_matrix csr; /* begun with the table, which then turns out to be larger than bits */
    random_rows(&csr, 100000, 7, 60000000, 4);
    check_renumbering(&csr, 7, 60000007);
    tr_matrix_free(&csr);
}

UNIT_CASE(few_columns_of_a_huge_space_take_little_memory)
{
    struct tr_matrix csr;
    random_rows(&csr, 20000, 0, 4294967280u, 3);
    uint64_t before = tr_peak_rss();
    check_renumbering(&csr, 0, 4294967294u);
    ck_assert_uint_lt(tr_peak_rss() - before, (uint64_t)256 << 20); /* one bit an index would be 512 MiB */
    tr_matrix_free(&csr);
}

UNIT_CASE(the_largest_index_has_a_place)
{
    uint32_t column[] = {4294967294u, 0, 5, 4294967294u};
    uint64_t begin[] = {0, 1, 4};
    uint32_t *keys;
    size_t n;
    struct tr_matrix csr = {.rows = 2, .begin = begin, .column = column};
    ck_ok(tr_renumber(&csr, 0, 4294967294u, &keys, &n));
    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(keys, ((uint32_t[]){0, 5, 4294967294u}), 12);
    ck_assert_mem_eq(column, ((uint32_t[]){2, 0, 1, 2}), 16);
    free(keys);
}

UNIT_CASE(no_columns_are_no_keys)
{
    uint64_t begin[] = {0, 0, 0};
    uint32_t *keys;
    size_t n;
    struct tr_matrix csr = {.rows = 2, .begin = begin};
    ck_ok(tr_renumber(&csr, UINT32_MAX, 0, &keys, &n));
    ck_assert_uint_eq(n, 0);
    free(keys);
}

UNIT_CASE(columns_outside_of_the_range_are_an_error)
{
    uint32_t column[] = {3, 9}, *keys;
    uint64_t begin[] = {0, 2};
    size_t n;
    struct tr_matrix csr = {.rows = 1, .begin = begin, .column = column};
    ck_fails(tr_renumber(&csr, 3, 8, &keys, &n), TR_ERR_INTERNAL, "outside of 3..8");
    ck_fails(tr_renumber(&csr, 4, 9, &keys, &n), TR_ERR_INTERNAL, "outside of 4..9");
    ck_assert_uint_eq(column[0], 3);
}
