#define _GNU_SOURCE
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "data/generate.h"
#include "data/libsvm.h"

static char *generate(struct tr_generate_options options, size_t *bytes)
{
    char *text;
    FILE *out = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(out);
    ck_ok(tr_generate_ctr(&options, out));
    fclose(out);
    return text;
}

/* Generates rows and reads them again. */
static void generate_rows(struct tr_generate_options options, struct tr_csr *csr,
                          struct tr_libsvm_report *report)
{
    char path[] = "/tmp/test_generate_XXXXXX";
    struct tr_files files;
    struct tr_libsvm_options reading = {.lowest_index = 1};
    FILE *out = fdopen(mkstemp(path), "w");
    ck_assert_ptr_nonnull(out);
    int status = tr_generate_ctr(&options, out);
    fclose(out);
    if (status == TR_OK) status = tr_files_open((char *[]){path}, 1, &files);
    if (status == TR_OK) status = tr_libsvm_read(&files, 0, 1, &reading, csr, report);
    unlink(path);
    ck_ok(status);
    tr_files_close(&files);
}

START_TEST(any_slice_is_that_part_of_the_whole)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 500;
    size_t whole_bytes, bytes, at = 0;
    char *whole = generate(options, &whole_bytes);
    for (uint64_t first = 0; first < 500; first += 125) {
        options.first_row = first;
        options.rows = 125;
        char *slice = generate(options, &bytes);
        ck_assert_uint_le(at + bytes, whole_bytes);
        ck_assert_mem_eq(whole + at, slice, bytes);
        at += bytes;
        free(slice);
    }
    ck_assert_uint_eq(at, whole_bytes);
    free(whole);
}
END_TEST

START_TEST(another_seed_is_other_data)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.rows = 10;
    size_t n, m;
    char *a = generate(options, &n);
    options.seed = 2;
    char *b = generate(options, &m);
    ck_assert_str_ne(a, b);
    free(a);
    free(b);
}
END_TEST

START_TEST(rows_are_as_asked_for)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_csr csr;
    struct tr_libsvm_report report;
    options.rows = 20000;
    options.features = 5000;
    options.noise = 0;
    generate_rows(options, &csr, &report);
    ck_assert_uint_eq(report.rows, 20000);
    ck_assert_uint_eq(report.nonzeros, 20000 * 40);
    ck_assert_uint_ge(report.lowest, 1);
    ck_assert_uint_le(report.highest, 5000);
    ck_assert_uint_eq(report.labels, 2);
    ck_assert(!report.binary);
    ck_assert_float_eq_tol(csr.value[0], 0.1581f, 1e-6f); /* 1 / sqrt(40), of 4 digits */
    size_t positive = 0;
    for (size_t i = 0; i < csr.rows; i++) positive += csr.label[i] > 0;
    ck_assert_double_eq_tol((double)positive / (double)csr.rows, 0.3, 0.02);
    tr_csr_free(&csr);
}
END_TEST

START_TEST(real_values_lie_between_0_and_1)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_csr csr;
    struct tr_libsvm_report report;
    options.rows = 2000;
    options.values = TR_VALUES_REAL;
    generate_rows(options, &csr, &report);
    ck_assert(!report.binary);
    for (size_t i = 0; i < report.nonzeros; i++) ck_assert(csr.value[i] > 0 && csr.value[i] <= 1);
    tr_csr_free(&csr);
}
END_TEST

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

START_TEST(popularity_follows_the_power)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_csr csr;
    struct tr_libsvm_report report;
    uint32_t counts[10001] = {0};
    options.rows = 200000;
    options.nonzeros = 1;
    options.features = 10000;
    generate_rows(options, &csr, &report);
    for (size_t i = 0; i < report.nonzeros; i++) counts[csr.column[i]]++;
    qsort(counts, 10001, sizeof *counts, descending);
    /* the continuous law lies half a step beside the discrete one: wide tolerance */
    ck_assert_double_eq_tol((double)counts[10] / counts[100], 11.5, 3);
    tr_csr_free(&csr);
}
END_TEST

START_TEST(rows_may_hold_every_feature)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    struct tr_csr csr;
    struct tr_libsvm_report report;
    options.rows = 50;
    for (uint32_t features = 1; features <= 100; features += 9) {
        options.features = options.nonzeros = features;
        generate_rows(options, &csr, &report);
        for (size_t i = 0; i < report.nonzeros; i++) ck_assert_uint_eq(csr.column[i], 1 + i % features);
        tr_csr_free(&csr);
    }
}
END_TEST

START_TEST(impossible_options_are_errors)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    options.nonzeros = options.features + 1;
    ck_fails(tr_generate_ctr(&options, stdout), TR_ERR_CONFIG, "nonzeros: 1000001, expected 1 to 1000000");
    options = TR_GENERATE_DEFAULTS;
    options.noise = 2;
    ck_fails(tr_generate_ctr(&options, stdout), TR_ERR_CONFIG, "noise: 2");
}
END_TEST

START_TEST(a_full_disk_is_an_error)
{
    struct tr_generate_options options = TR_GENERATE_DEFAULTS;
    FILE *full = fopen("/dev/full", "w");
    if (!full) return;
    options.rows = 10;
    ck_fails(tr_generate_ctr(&options, full), TR_ERR_IO, "No space");
    fclose(full);
}
END_TEST

UNIT_MAIN("generate", any_slice_is_that_part_of_the_whole, another_seed_is_other_data, rows_are_as_asked_for,
          real_values_lie_between_0_and_1, popularity_follows_the_power, rows_may_hold_every_feature,
          impossible_options_are_errors, a_full_disk_is_an_error)
