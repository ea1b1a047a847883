/* Model files: arrays are written whole or in pieces and read back unchanged; missing or different arrays are refused. */
#include "unit.h"

#include "store/h5.h"

enum { ROWS = 1000, COLUMNS = 7 };

UNIT_FIXTURE(unit_make_folder, NULL)

static float element(size_t i)
{
    return (float)i * 0.25f - 100;
}

static struct tr_h5_writer *create(void)
{
    struct tr_h5_writer *w;
    ck_ok(tr_h5_create(unit_folder, "trireme-test", 3, "name: x\n", NULL, &w));
    return w;
}

static void write_model(void)
{
    static const char words[3][5] = {"a", "quite", ""}; /* the second fills its place */
    static const uint16_t small[4] = {1, 2, 65535, 0};
    static const int64_t ids[2] = {INT64_MIN, 7};
    struct tr_h5_writer *w = create();
    float *matrix;
    ck_ok(TR_NEW(&matrix, ROWS * COLUMNS));
    for (size_t i = 0; i < ROWS * COLUMNS; i++) matrix[i] = element(i);
    ck_ok(tr_h5_put_count(w, "rows", ROWS));
    ck_ok(tr_h5_put_real(w, "loss", 0.5));
    ck_ok(tr_h5_put_text(w, "kind", "small"));
    ck_ok(tr_h5_begin(w, "matrix", TR_H5_F32, ROWS, COLUMNS));
    for (size_t row = 0, n; row < ROWS; row += n) {
        n = tr_min_size(300, ROWS - row);
        ck_ok(tr_h5_append(w, matrix + row * COLUMNS, n));
    }
    ck_ok(tr_h5_describe(w, "rows_are", "users"));
    ck_ok(tr_h5_begin_texts(w, "words", 3, 5));
    ck_ok(tr_h5_append(w, words, 1));
    ck_ok(tr_h5_append(w, words + 1, 2));
    ck_ok(tr_h5_put(w, "small", TR_H5_U16, 4, 0, small));
    ck_ok(tr_h5_put(w, "ids", TR_H5_I64, 2, 0, ids));
    ck_ok(tr_h5_put(w, "one", TR_H5_F32, 0, 0, &matrix[3]));
    ck_assert_int_ne(access(unit_path("model.h5"), F_OK), 0); /* not before it is complete */
    ck_ok(tr_h5_finish(&w));
    ck_assert_ptr_null(w);
    free(matrix);
}

static struct tr_h5_reader *open_model(void)
{
    struct tr_h5_reader *r;
    ck_ok(tr_h5_open(unit_folder, "trireme-test", 3, &r));
    return r;
}

UNIT_CASE(what_is_written_reads_back)
{
    write_model();
    struct tr_h5_reader *r = open_model();
    uint64_t rows;
    double loss;
    char *text, *job, *words;
    size_t length;
    ck_ok(tr_h5_get_count(r, "rows", &rows));
    ck_assert_uint_eq(rows, ROWS);
    ck_ok(tr_h5_get_real(r, "loss", &loss));
    ck_assert_double_eq(loss, 0.5);
    ck_ok(tr_h5_get_text(r, "kind", &text));
    ck_assert_str_eq(text, "small");
    ck_ok(tr_h5_get_job(r, &job));
    ck_assert_str_eq(job, "name: x\n");
    ck_ok(tr_h5_get_texts(r, "words", 3, &words, &length));
    ck_assert_uint_eq(length, 6);
    ck_assert_str_eq(words, "a");
    ck_assert_str_eq(words + length, "quite");
    ck_assert_str_eq(words + 2 * length, "");
    ck_assert(tr_h5_has(r, "matrix") && !tr_h5_has(r, "matrices"));
    ck_assert_str_eq(tr_h5_format(r), "trireme-test");
    float *matrix, *one;
    ck_ok(tr_h5_get(r, "matrix", TR_H5_F32, ROWS, COLUMNS, &matrix));
    for (size_t i = 0; i < ROWS * COLUMNS; i++) ck_assert_float_eq(matrix[i], element(i));
    ck_ok(tr_h5_get(r, "one", TR_H5_F32, 0, 0, &one));
    ck_assert_float_eq(*one, element(3));
    int64_t *ids;
    uint32_t *small; /* another type than in the file */
    ck_ok(tr_h5_get(r, "ids", TR_H5_I64, 2, 0, &ids));
    ck_assert(ids[0] == INT64_MIN && ids[1] == 7);
    ck_ok(tr_h5_get(r, "small", TR_H5_U32, 4, 0, &small));
    ck_assert(small[0] == 1 && small[2] == 65535 && small[3] == 0);
    void *memory[] = {text, job, words, matrix, one, ids, small};
    for (size_t i = 0; i < COUNT(memory); i++) free(memory[i]);
    tr_h5_close(&r);
}

UNIT_CASE(what_is_not_as_promised_is_refused)
{
    write_model();
    struct tr_h5_reader *r = open_model();
    void *values = NULL;
    uint64_t count;
    char *texts;
    size_t length;
    ck_fails(tr_h5_get_count(r, "kind", &count), TR_ERR_DATA, "kind is missing or of another kind");
    ck_fails(tr_h5_get_count(r, "none", &count), TR_ERR_DATA, "none is missing");
    ck_fails(tr_h5_get(r, "matrix", TR_H5_F32, ROWS + 1, COLUMNS, &values), TR_ERR_DATA, "expected 1001");
    ck_fails(tr_h5_get(r, "matrix", TR_H5_F32, ROWS, COLUMNS + 1, &values), TR_ERR_DATA, "expected 8");
    ck_fails(tr_h5_get(r, "matrix", TR_H5_F32, ROWS, 0, &values), TR_ERR_DATA,
             "matrix is missing or of another kind");
    ck_fails(tr_h5_get(r, "words", TR_H5_U8, 3, 0, &values), TR_ERR_DATA,
             "words is missing or of another kind");
    ck_fails(tr_h5_get_texts(r, "ids", 2, &texts, &length), TR_ERR_DATA, "ids is missing or of another kind");
    ck_assert_ptr_null(values);
    tr_h5_close(&r);
    ck_fails(tr_h5_open(unit_folder, "trireme-other", 3, &r), TR_ERR_DATA, "format trireme-other");
    ck_fails(tr_h5_open(unit_folder, "trireme-test", 4, &r), TR_ERR_DATA, "format version 3, expected 4");
    ck_ok(tr_h5_open(unit_path("model.h5"), NULL, 0, &r));
    tr_h5_close(&r);
    ck_assert_int_eq(truncate(unit_path("model.h5"), 1000), 0);
    ck_fails(tr_h5_open(unit_folder, NULL, 0, &r), TR_ERR_DATA, "cut off or damaged");
    unlink(unit_path("model.h5"));
    ck_fails(tr_h5_open(unit_folder, NULL, 0, &r), TR_ERR_NO_INPUT, unit_folder);
}

/* Any byte of it, before HDF5 looks at it; files of other programs, which have no header, are read. */
UNIT_CASE(a_damaged_file_is_refused)
{
    write_model();
    struct tr_h5_reader *r;
    size_t n, header = 4096;
    char *bytes = unit_read("model.h5", &n);
    for (size_t i = 0; i < n; i += 1 + i / 500) {
        char before = bytes[i];
        bytes[i] = (char)(before ^ (i % 3 == 0 ? 0xff : 1 << i % 8));
        unit_write("model.h5", bytes, n);
        ck_fails(tr_h5_open(unit_folder, NULL, 0, &r), TR_ERR_DATA, "cut off or damaged");
        bytes[i] = before;
    }
    ck_assert(n > header);
    unit_write("model.h5", bytes + header, n - header);
    r = open_model();
    float *matrix;
    ck_ok(tr_h5_get(r, "matrix", TR_H5_F32, ROWS, COLUMNS, &matrix));
    ck_assert_float_eq(matrix[ROWS], element(ROWS));
    free(matrix);
    tr_h5_close(&r);
    free(bytes);
}

UNIT_CASE(an_unfinished_file_leaves_nothing)
{
    struct tr_h5_writer *w = create();
    float number = 1;
    ck_ok(tr_h5_begin(w, "matrix", TR_H5_F32, 10, 0));
    ck_ok(tr_h5_append(w, &number, 1));
    ck_fails(tr_h5_finish(&w), TR_ERR_INTERNAL, "too few rows");
    ck_assert_ptr_null(w);
    w = create();
    ck_ok(tr_h5_begin(w, "matrix", TR_H5_F32, 1, 0));
    ck_ok(tr_h5_append(w, &number, 1));
    ck_fails(tr_h5_append(w, &number, 1), TR_ERR_INTERNAL, "too many rows");
    tr_h5_abandon(&w);
    ck_assert_int_eq(rmdir(unit_folder), 0);
}
