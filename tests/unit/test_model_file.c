/* Models in files: a written model is read back with the same bits, and other files are refused. */
#include "unit.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>

#include "class/class.h"
#include "store/h5.h"
#include "model/linear/linear.h"

UNIT_FIXTURE(unit_make_folder, NULL)

/* Numbers of all sizes, a third of them zero. */
static double odd_number(struct tr_rng *rng)
{
    uint64_t kind = tr_rng_below(rng, 3);
    if (kind == 0) return 0;
    double x = tr_rng_normal(rng);
    return kind == 1 ? x : x * pow(10, tr_rng_normal(rng) * 8);
}

enum { FEATURES = 5000, FIRST = 3000 };

/* Of one output, or several classifiers'; a softmax if it is logistic. */
static struct tr_linear_model some_model_of(const struct tr_loss *loss, enum tr_dtype dtype, bool biased,
                                            size_t outputs)
{
    static const float labels[] = {2, -3, 0.5f, 7, 100, 2000}; /* of one output the positive one is first */
    struct tr_linear_model m = {.loss = loss,
                                .dtype = dtype,
                                .features = FEATURES,
                                .first_index = loss == &tr_loss_linear ? 0 : 1,
                                .outputs = outputs,
                                .softmax = outputs > 1 && loss == &tr_loss_logistic,
                                .biased = biased,
                                .shape = loss->shape == TR_SHAPE_NONE ? 0 : 0.3,
                                .labels = outputs > 1 ? outputs : 2,
                                .l2 = 1e-4,
                                .objective = 0.25,
                                .rows = 12345};
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, (uint64_t)loss->type[0], (uint64_t)dtype);
    float *f32;
    double *f64;
    ck_ok(TR_NEW(&f64, FEATURES * outputs));
    f32 = (float *)f64;
    m.weight = f64;
    for (size_t i = 0; i < FEATURES * outputs; i++) {
        double x = odd_number(&rng);
        if (dtype == TR_F32) f32[i] = (float)x;
        else f64[i] = x;
    }
    ck_ok(TR_NEW(&m.bias, outputs));
    ck_ok(TR_NEW(&m.label, m.labels));
    for (size_t k = 0; biased && k < outputs; k++)
        m.bias[k] = dtype == TR_F32 ? (double)(0.1f * (float)(k + 1)) : 0.1 * (double)(k + 1);
    memcpy(m.label, outputs > 1 ? labels + 1 : labels, m.labels * sizeof *labels);
    return m;
}

static struct tr_linear_model some_model(const struct tr_loss *loss, enum tr_dtype dtype, bool biased)
{
    return some_model_of(loss, dtype, biased, 1);
}

static const char job_text[] = "model:\n  type: svm # «x»\n";

/* As tr_linear_class writes it when it has been trained. */
static void save_h5(const struct tr_linear_model *m)
{
    struct tr_h5_writer *w;
    enum tr_h5_type type = m->dtype == TR_F32 ? TR_H5_F32 : TR_H5_F64;
    uint64_t columns = m->outputs > 1 ? m->outputs : 0;
    float f32[8];
    for (size_t k = 0; k < m->outputs; k++) f32[k] = (float)m->bias[k];
    ck_ok(tr_h5_create(unit_folder, "trireme-linear", 1, job_text, NULL, &w));
    ck_ok(tr_h5_put_text(w, "model", m->loss->type));
    ck_ok(tr_h5_put_count(w, "features", m->features));
    ck_ok(tr_h5_put_count(w, "first_index", m->first_index));
    if (m->loss->shape != TR_SHAPE_NONE) ck_ok(tr_h5_put_real(w, tr_shape_name[m->loss->shape], m->shape));
    ck_ok(tr_h5_put_real(w, "l2", m->l2));
    ck_ok(tr_h5_put_real(w, "objective", m->objective));
    ck_ok(tr_h5_put_count(w, "rows", m->rows));
    if (columns) ck_ok(tr_h5_put_count(w, "classes", columns));
    if (columns) ck_ok(tr_h5_put_text(w, "probabilities", m->softmax ? "softmax" : "one-against-rest"));
    if (tr_linear_model_classifies(m)) ck_ok(tr_h5_put(w, "labels", TR_H5_F32, m->labels, 0, m->label));
    if (m->biased)
        ck_ok(tr_h5_put(w, "bias", type, columns, 0, m->dtype == TR_F32 ? (void *)f32 : (void *)m->bias));
    ck_ok(tr_h5_put(w, "weights", type, m->features, columns, m->weight));
    ck_ok(tr_h5_finish(&w));
}

static void save(const struct tr_linear_model *m)
{
    struct tr_linear_text *t;
    size_t size = m->outputs * (m->dtype == TR_F32 ? 4 : 8);
    save_h5(m);
    ck_ok(tr_linear_text_create(unit_folder, m, NULL, &t));
    ck_ok(tr_linear_text_append(t, m->dtype, m->weight, FIRST));
    ck_ok(tr_linear_text_append(t, m->dtype, (char *)m->weight + FIRST * size, FEATURES - FIRST));
    if (m->biased) ck_ok(tr_linear_text_append(t, TR_F64, m->bias, 1));
    ck_ok(tr_linear_text_close(&t, TR_OK));
}

/* Reads it as predict does; the model stays in `opened` until the next call. */
static struct tr_model opened;

static int read_model(const char *from, struct tr_linear_model *model)
{
    tr_model_close(&opened);
    int status = tr_model_open(from, NULL, &opened);
    if (status == TR_OK) status = tr_model_read(&opened);
    if (status == TR_OK) *model = ((struct tr_linear *)opened.model)->saved;
    else tr_model_close(&opened);
    return status;
}

static void expect_equal(const struct tr_linear_model *a, const struct tr_linear_model *b)
{
    ck_assert_ptr_eq(a->loss, b->loss);
    ck_assert_double_eq(a->shape, b->shape);
    ck_assert_int_eq(a->dtype, b->dtype);
    ck_assert_uint_eq(a->features, b->features);
    ck_assert_int_eq(a->biased, b->biased);
    ck_assert_uint_eq(a->outputs, b->outputs);
    ck_assert_int_eq(a->softmax, b->softmax);
    ck_assert_mem_eq(a->bias, b->bias, a->outputs * sizeof *a->bias);
    if (tr_linear_model_classifies(a)) {
        ck_assert_uint_eq(a->labels, b->labels);
        ck_assert_mem_eq(a->label, b->label, a->labels * sizeof *a->label);
    }
    ck_assert_mem_eq(a->weight, b->weight, a->features * a->outputs * (a->dtype == TR_F32 ? 4 : 8));
}

UNIT_CASE(both_files_read_back_bit_by_bit)
{
    size_t losses = 0;
    while (tr_losses[losses]) losses++;
    for (size_t i = 0; i < 8 * losses; i++) {
        const struct tr_loss *loss = tr_losses[i / 8];
        size_t outputs = i & 1 && tr_loss_classifies(loss) ? 5 : 1;
        struct tr_linear_model m = some_model_of(loss, i & 2 ? TR_F64 : TR_F32, i & 4, outputs), read;
        save(&m);
        ck_ok(read_model(unit_folder, &read));
        expect_equal(&m, &read);
        ck_assert_uint_eq(m.first_index, read.first_index);
        ck_assert_uint_eq(m.rows, read.rows);
        ck_assert(m.l2 == read.l2 && m.objective == read.objective);
        ck_assert_str_eq(job_text, opened.text);
        ck_ok(read_model(unit_path("model.txt"), &read));
        expect_equal(&m, &read);
        ck_assert_uint_eq(m.first_index, read.first_index);
        tr_linear_model_free(&m);
    }
}

UNIT_CASE(digits_read_back_exactly)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 1, 2, 3);
    char text[TR_NUMBER_ROOM + 1];
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = i < 1000   ? (uint32_t)i
                        : i < 2000 ? 0x7f7fffffu - (uint32_t)(i - 1000)
                                   : (uint32_t)tr_rng_next(&rng);
        float x;
        memcpy(&x, &bits, 4);
        if (!isfinite(x)) continue;
        *tr_put_f32(text, x) = '\0';
        float y = strtof(text, NULL);
        ck_assert_msg(memcmp(&x, &y, 4) == 0, "%.9g became %s", (double)x, text);
        ck_assert_uint_lt(strlen(text), 18);
    }
    static const char *const same[] = {"0",      "-0",       "1",   "-1",       "10",
                                       "100000", "16777216", "0.5", "0.015625", "1.5"};
    for (size_t i = 0; i < COUNT(same); i++) {
        *tr_put_f32(text, strtof(same[i], NULL)) = '\0';
        ck_assert_str_eq(text, same[i]);
    }
}

UNIT_CASE(a_truncated_model_is_refused)
{
    static const char *const names[] = {"model.h5", "model.txt"};
    for (int f = 0; f < 2; f++) {
        struct tr_linear_model m = some_model(&tr_loss_logistic, TR_F32, true), read;
        save(&m);
        size_t n;
        char *bytes = unit_read(names[f], &n);
        for (size_t cut = 0; cut < n; cut += 97) {
            unit_write("cut", bytes, cut);
            int status = read_model(unit_path("cut"), &read);
            ck_assert_msg(status == (cut ? TR_ERR_DATA : TR_ERR_NO_INPUT), "%s cut at %zu: %d", names[f], cut,
                          status);
            ck_contains(tr_error_text(), "/cut");
        }
        unit_write("cut", bytes, n - 1);
        ck_assert_int_eq(read_model(unit_path("cut"), &read), TR_ERR_DATA);
        free(bytes);
        tr_linear_model_free(&m);
    }
}

/* Not under AddressSanitizer: HDF5 1.10 itself reads freed memory and leaks when a damaged attribute is opened. */
UNIT_CASE(a_damaged_h5_never_crashes)
{
#ifdef __SANITIZE_ADDRESS__
    return;
#endif
    struct tr_linear_model m = some_model(&tr_loss_svm, TR_F32, true), read;
    save(&m);
    size_t n;
    char *bytes = unit_read("model.h5", &n);
    for (size_t i = 0; i < n && i < 8192; i += 7) {
        bytes[i] ^= 0x55;
        unit_write("cut", bytes, n);
        (void)read_model(unit_path("cut"), &read);
        bytes[i] ^= 0x55;
    }
    free(bytes);
    tr_linear_model_free(&m);
}

#define HEAD  "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n"
#define HEAD3 "solver_type L2R_LR\nnr_class 3\nlabel 1 2 3\nnr_feature 1\nbias -1\nw\n"

UNIT_CASE(a_malformed_text_is_refused)
{
    static const char *const all[][2] = {
        {"hello\n", "m:1: not a model"},
        {"solver_type ONECLASS_SVM\n", "solver_type"},
        {"solver_type L2R_LR\nnr_class 1\n", "m:2: expected a model of two classes"},
        {"solver_type L2R_LR\nlabel 1 2\nnr_class 3\n", "nr_class before label"},
        {"solver_type L2R_LR\nnr_class 3\nlabel 1 2\n", "expected a number"},
        {"solver_type L2R_LR\nnr_class 3\nlabel 1 2 1\n", "labels that differ"},
        {HEAD3 "1 2\n  \n", "expected a number, found the end of the line"},
        {HEAD3 "1 2 3 4\n", "m:7: found more"},
        {HEAD3 "1 2 3\nsoft\n", "expected the end"},
        {"solver_type L2R_LR\nlabel 1 1\n", "two labels that differ"},
        {"solver_type L2R_LR\nlabel 1\n", "expected a number"},
        {"solver_type L2R_LR\nnr_feature -3\n", "impossible"},
        {"solver_type L2R_LR\nnr_feature 1.5\n", "impossible"},
        {"solver_type L2R_LR\ncolour blue\n", "m:2: unknown word"},
        {"solver_type L2R_LR\nnr_feature 2\nw\n1\n2\n", "expected solver_type"},
        {"solver_type L2R_LR\nlabel 1 -1\nnr_feature 9000000000000000\nw\n1\n2\n", "cut off"},
        {HEAD "1\n", "cut off"},
        {HEAD "1\n2", "cut off"},
        {HEAD "1\nnan\n", "weight 1 is not a finite number"},
        {HEAD "1\n1e999\n", "weight 1 is not a finite number"},
        {HEAD "1\nx\n", "m:8: expected a number"},
        {HEAD "1 2\n3\n", "m:7: found more"},
        {HEAD "1\n2\n3\n", "more weights"}};
    struct tr_linear_model m;
    for (size_t i = 0; i < COUNT(all); i++)
        ck_fails(tr_linear_model_parse_text(all[i][0], strlen(all[i][0]), "m", &m), TR_ERR_DATA, all[i][1]);
}

UNIT_CASE(liblinears_own_text_is_read)
{
    static const char text[] =
        "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel -1 1\nnr_feature 2\nbias 2\n"
        "w\n0.10000000000000001 \n-3 \n0.5 \n";
    struct tr_linear_model m;
    ck_ok(tr_linear_model_parse_text(text, strlen(text), "m", &m));
    ck_assert_ptr_eq(m.loss, &tr_loss_l2svm);
    ck_assert_int_eq(m.dtype, TR_F64);
    ck_assert(m.label[0] == 1 && m.label[1] == -1 && *m.bias == -1);
    struct tr_linear linear = {.saved = m, .output = TR_OUT_MARGIN};
    tr_records records = {
        .rows = {
            .n = 1, .begin = (uint64_t[]){0, 2}, .column = (uint32_t[]){0, 1}, .value = (float[]){10, 1}}};
    double margin;
    ck_ok(tr_linear_predict(&linear, NULL, &records, &margin));
    ck_assert_double_eq_tol(margin, 1, 1e-12); /* of label 1: -(0.1 · 10 - 3 + 2 · 0.5) */
    tr_linear_model_free(&m);
}

UNIT_CASE(the_order_of_labels_in_a_text_does_not_matter)
{
    static const char *const text[] = {
        "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias 1\nw\n2 \n0 \n-0.5 \n",
        "solver_type L2R_LR\nnr_class 2\nlabel -1 1\nnr_feature 2\nbias 1\nw\n-2 \n0 \n0.5 \n",
        "solver_type L2R_LR\nnr_class 3\nlabel 3 1 2\nnr_feature 2\nbias 1\nw\n3 1 2 \n6 4 5 \n9 7 8 \n",
        "solver_type L2R_LR\nnr_class 3\nlabel 2 3 1\nnr_feature 2\nbias 1\nw\n2 3 1 \n5 6 4 \n8 9 7 \n"};
    static const float weight[] = {2, 0, 1, 2, 3, 4, 5, 6}, label[] = {1, -1, 1, 2, 3};
    static const double bias[] = {-0.5, 7, 8, 9};
    for (size_t i = 0; i < 4; i++) {
        struct tr_linear_model m;
        size_t one = i < 2 ? 0 : 1; /* start of the expected results of the texts with three labels */
        ck_ok(tr_linear_model_parse_text(text[i], strlen(text[i]), "m", &m));
        ck_assert_mem_eq(m.label, label + 2 * one, m.labels * sizeof *label);
        ck_assert_mem_eq(m.weight, weight + 2 * one, 2 * m.outputs * sizeof *weight);
        ck_assert_mem_eq(m.bias, bias + one, m.outputs * sizeof *bias);
        tr_linear_model_free(&m);
    }
}

/* As another program would write it: without the header whose sums would tell of the change. */
static void put_number(const char *name, const char *attribute, int value)
{
    const size_t header = 4096;
    size_t n;
    char *bytes = unit_read(name, &n);
    if (memcmp(bytes, "trireme-model", 13) == 0) unit_write(name, bytes + header, n - header);
    free(bytes);
    hid_t file = H5Fopen(unit_path(name), H5F_ACC_RDWR, H5P_DEFAULT),
          a = H5Aopen(file, attribute, H5P_DEFAULT);
    ck_assert(H5Awrite(a, H5T_NATIVE_INT, &value) >= 0);
    H5Aclose(a);
    H5Fclose(file);
}

UNIT_CASE(a_malformed_h5_is_refused)
{
    struct tr_linear_model m = some_model(&tr_loss_logistic, TR_F32, false), read;
    save(&m);
    put_number("model.h5", "format_version", 99);
    ck_fails(read_model(unit_folder, &read), TR_ERR_DATA, "format version 99, expected 1");
    put_number("model.h5", "format_version", 1);
    put_number("model.h5", "features", 4999);
    ck_fails(read_model(unit_folder, &read), TR_ERR_DATA, "5000 numbers in weights, expected 4999");
    ((float *)m.weight)[17] = NAN;
    save(&m);
    ck_fails(read_model(unit_folder, &read), TR_ERR_DATA, "weight 17 is not a finite number");
    hid_t file = H5Fcreate(unit_path("other"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    ck_fails(read_model(unit_path("other"), &read), TR_ERR_DATA, "not a model of Trireme");
    unit_write("other", "+1 1:1\n", 7);
    ck_fails(read_model(unit_path("other"), &read), TR_ERR_DATA, "expected a model.h5 or model.txt");
    ck_fails(read_model(unit_path("missing"), &read), TR_ERR_NO_INPUT, "No such file");
    tr_linear_model_free(&m);
    unlink(unit_path("model.h5"));
    unlink(unit_path("model.txt"));
    ck_fails(read_model(unit_folder, &read), TR_ERR_NO_INPUT, "there is no model.h5");
}

UNIT_CASE(nothing_is_left_where_writing_fails)
{
    struct tr_linear_model m = some_model(&tr_loss_logistic, TR_F32, false);
    struct tr_linear_text *t;
    ck_ok(tr_linear_text_create(unit_folder, &m, NULL, &t));
    ck_ok(tr_linear_text_append(t, m.dtype, m.weight, FIRST));
    tr_linear_text_close(&t, TR_ERR_IO);
    ck_assert_msg(rmdir(unit_folder) == 0, "something was left in %s", unit_folder);
    ck_fails(tr_linear_text_create("/dev/null/x", &m, NULL, &t), TR_ERR_NO_OUTPUT, "/dev/null");
    tr_linear_text_close(&t, TR_ERR_IO);
    ck_fails(tr_linear_text_create("/proc/x", &m, NULL, &t), TR_ERR_NO_OUTPUT, "/proc/x");
    tr_linear_text_close(&t, TR_ERR_IO);
    tr_linear_model_free(&m);
}
