/* Fuzzing the description of the training columns in a model.h5: the files are valid for HDF5 and have the right digest; names,
 * types, dictionaries and crosses follow from the bytes of an input. Either one line names the error, or a table is read with
 * them as predict and evaluate do, and its keys and labels are in bounds.
 *
 * Input bytes of ODD and more ask for something odd.
 */
#define _GNU_SOURCE
#include <math.h>

#include "class/class.h"
#include "data/reader.h"
#include "fuzz_files.h"
#include "store/h5.h"

enum { MOST = 8, ROWS = 6, ODD = 160 };

/* Most often as it should be. */
static uint64_t perhaps(struct bytes *in, uint64_t usual)
{
    static const uint64_t odd[] = {0, 1, 2, 255, UINT32_MAX - 1, UINT32_MAX, (uint64_t)1 << 32, UINT64_MAX};
    unsigned byte = next_byte(in);
    if (byte < ODD) return usual;
    return byte % 2 ? usual + byte / 2 % 4 - 1 : odd[byte / 2 % 8];
}

/* ---- a file ---- */

static void put(struct bytes *in, struct tr_h5_writer *w, const char *name, enum tr_h5_type type,
                uint64_t rows, uint64_t columns, const void *values)
{
    static const float others[MOST * (1 + TR_CROSS_MOST) + 256];
    unsigned byte = next_byte(in);
    if (byte >= ODD && byte % 16 == 0) return; /* it is missing */
    if (byte >= ODD && byte % 16 == 1 && rows * tr_max_size(columns, 1) <= sizeof others / sizeof *others) {
        type = TR_H5_F32;
        values = others; /* where there were bytes these are more */
    }
    if (byte >= ODD && byte % 16 == 2) rows = columns = 0;
    if (byte >= ODD && byte % 16 == 3 && rows > 0) rows--;
    DEMAND(tr_h5_put(w, name, type, rows, columns, values) == TR_OK);
}

/* Names a, b and so on by default; otherwise equal, empty or longer ones. */
static void put_texts(struct bytes *in, struct tr_h5_writer *w, const char *name, const char *count, size_t n)
{
    char text[8] = "";
    DEMAND(tr_h5_put_count(w, count, perhaps(in, n)) == TR_OK);
    if (n == 0) return;
    DEMAND(tr_h5_begin_texts(w, name, n, sizeof text) == TR_OK);
    for (size_t i = 0; i < n; i++) {
        unsigned byte = next_byte(in);
        snprintf(text, sizeof text, "%c", byte < ODD ? 'a' + (int)i : (int)byte);
        if (byte >= ODD && byte % 16 == 15)
            memset(text, 'a' + (int)byte / 16, sizeof text); /* without an end */
        DEMAND(tr_h5_append(w, text, 1) == TR_OK);
    }
}

static void put_columns(struct bytes *in, struct tr_h5_writer *w, size_t n, size_t crosses)
{
    static const double means[] = {0, 1.5, -3e38, 1e300, INFINITY, NAN};
    uint8_t type[MOST], flags[MOST];
    double mean[MOST];
    uint64_t values[MOST], begin[64] = {0}, all = 0;
    uint32_t cross[MOST][1 + TR_CROSS_MOST];
    const uint64_t raw = next_byte(in) % 4 == 3 ? 4 : 0;
    for (size_t c = 0; c < n; c++) {
        type[c] = (uint8_t)(c + crosses < n ? perhaps(in, next_byte(in) % TR_COLUMN_TYPES)
                                            : perhaps(in, TR_COLUMN_CATEGORY));
        flags[c] = (uint8_t)(next_byte(in) % 4 + perhaps(in, raw));
        mean[c] = means[next_byte(in) % (sizeof means / sizeof *means)];
        values[c] = perhaps(in, type[c] == TR_COLUMN_CATEGORY ? next_byte(in) % 6 : 0);
        all += values[c] < 7 ? values[c] : 0;
    }
    put(in, w, "table_types", TR_H5_U8, n, 0, type);
    put(in, w, "table_flags", TR_H5_U8, n, 0, flags);
    put(in, w, "table_means", TR_H5_F64, n, 0, mean);
    put(in, w, "table_values", TR_H5_U64, n, 0, values);
    for (size_t i = 0; i < crosses; i++)
        for (size_t k = 0; k <= TR_CROSS_MOST; k++)
            cross[i][k] =
                (uint32_t)perhaps(in, k > 0 ? next_byte(in) % (n - crosses) : 2 + next_byte(in) % 3);
    if (crosses > 0) put(in, w, "table_crossed", TR_H5_U32, crosses, 1 + TR_CROSS_MOST, cross);
    char text[256];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + (i * 7 + i / 26) % 26);
    for (size_t i = 0; i < all && i < 63; i++) begin[i + 1] = perhaps(in, begin[i] + 1 + next_byte(in) % 3);
    put(in, w, "dictionary_begin", TR_H5_U64, all + 1, 0, begin);
    put(in, w, "dictionary_text", TR_H5_U8, begin[all] < sizeof text ? begin[all] + 1 : 1, 0, text);
}

static void make(struct bytes *in, const char *folder)
{
    struct tr_h5_writer *w;
    size_t crosses = next_byte(in) % 8 == 7 ? 1 + next_byte(in) % 2 : 0, n = 1 + next_byte(in) % 5 + crosses;
    DEMAND(tr_h5_create(folder, "trireme-fuzz", 1, NULL, NULL, &w) == TR_OK);
    put_texts(in, w, "table_names", "table_columns", n);
    DEMAND(tr_h5_put_count(w, "table_header", 1) == TR_OK);
    put_texts(in, w, "table_labels", "table_label_names", next_byte(in) % 4);
    put_texts(in, w, "table_missing", "table_missing_words", next_byte(in) % 3);
    DEMAND(tr_h5_put_count(w, "table_one_positive", next_byte(in) >= ODD) == TR_OK);
    DEMAND(tr_h5_put_count(w, "table_hash", next_byte(in) % 4 == 3 ? perhaps(in, 16) : 0) == TR_OK);
    DEMAND(tr_h5_put_count(w, "table_crosses", perhaps(in, crosses)) == TR_OK);
    put_columns(in, w, n, crosses);
    DEMAND(tr_h5_finish(&w) == TR_OK);
}

/* ---- reading with it ---- */

/* A table with these columns, of letters and digits. */
static size_t write_table(struct bytes *in, const struct tr_schema *s, char *text, size_t room)
{
    size_t at = 0, fields = tr_schema_fields(s);
    for (size_t row = 0; row <= ROWS; row++)
        for (size_t c = 0; c < fields && at + 32 < room; c++) {
            size_t n = 1;
            unsigned byte = next_byte(in);
            bool number =
                s->column[c].type != TR_COLUMN_CATEGORY && s->column[c].type != TR_COLUMN_NAMED_LABEL;
            const char *name = tr_ids_text(&s->names, c, &n);
            if (row == 0) at += (size_t)snprintf(text + at, room - at, "%.*s", (int)n, name);
            else if (byte % 8 > 0)
                at +=
                    (size_t)snprintf(text + at, room - at, "%c", number ? '0' + byte % 10 : 'a' + byte % 26);
            text[at++] = c + 1 < fields ? ',' : '\n';
        }
    return at;
}

static void check_rows(const struct tr_schema *s, struct tr_matrix *m)
{
    uint64_t unknown;
    for (size_t i = 0; m->label && i < m->rows; i++)
        if (s->label < s->n && s->column[s->label].type == TR_COLUMN_NAMED_LABEL)
            DEMAND(isnan(m->label[i]) || (m->label[i] >= 0 && (size_t)m->label[i] <= s->labels.n));
    DEMAND(tr_schema_expand(s, NULL, m, &unknown) == TR_OK);
    for (size_t k = 0; m->begin && k < tr_matrix_nonzeros(m); k++) DEMAND(m->column[k] < s->keys);
    if (!m->begin) DEMAND(m->columns == s->keys);
}

static void use(struct bytes *in, const struct tr_schema *s)
{
    char text[4096], shown[TR_SHOWN_NAME];
    int fd;
    struct tr_files files;
    struct tr_head *head = NULL;
    struct tr_bindings bindings = {0};
    struct tr_matrix rows = {0};
    struct tr_read_report report = {0};
    for (uint64_t key = 0; key < s->keys && key < 100; key++) {
        tr_schema_key_text(s, key, shown);
        tr_schema_value_text(s, key, key, shown);
    }
    for (int label = -1; label < 4; label++) tr_schema_label_text(s, (float)label, shown);
    bool labelled = next_byte(in) % 2;
    open_bytes((const uint8_t *)text, write_table(in, s, text, sizeof text), &fd, &files);
    struct tr_reader_options options = {.format = TR_FORMAT_CSV,
                                        .schema = s,
                                        .bindings = &bindings,
                                        .settled = true,
                                        .rows_without_label = !labelled};
    int status = tr_heads_read(&files, TR_FORMAT_CSV, TR_HEADER_YES, &head);
    options.heads = head;
    if (status == TR_OK) status = tr_schema_bind(s, &files, head, labelled, &bindings);
    if (status == TR_OK) status = tr_read_matrix(&files, 0, 1, &options, &rows, &report);
    if (status == TR_OK) {
        check_rows(s, &rows);
        tr_ids_free(&report.labels.bits);
        tr_matrix_free(&rows);
    } else {
        expect_error(status, TR_ERR_SYSTEM);
    }
    tr_bindings_free(&bindings);
    free(head);
    tr_files_close(&files);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char folder[64], path[96];
    struct bytes in = {data, n};
    struct tr_h5_reader *r = NULL;
    struct tr_schema *s = NULL;
    snprintf(folder, sizeof folder, "/dev/shm/fuzz-schema-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/model.h5", folder);
    make(&in, folder);
    DEMAND(tr_h5_open(folder, "trireme-fuzz", 1, &r) == TR_OK);
    int status = tr_saved_schema_read(r, &s);
    if (status == TR_OK && s) use(&in, s);
    else if (status != TR_OK) expect_error(status, TR_ERR_SYSTEM);
    DEMAND(status == TR_OK || !s);
    tr_schema_release(&s);
    tr_h5_close(&r);
    unlink(path);
    rmdir(folder);
    return 0;
}
