/* Files of checkpoints: values written are read back, the manifest lists complete tables, and damaged, truncated or foreign
 * files are refused in one line. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <hdf5.h>

#include "store/shard.h"
#include "store/persistent.h"
#include "store/checkpoint.h"

enum { RUN = 77, NUMBER = 12, SHARDS = 3, PARTS = 6, ROWS = 40, COLUMNS = 5, CUT = 3 };

static char to[64], name[160];

static const char *in_folder(const char *file)
{
    snprintf(name, sizeof name, "%s/%08d/%s", to, NUMBER, file);
    return name;
}

static const char *shard_name(uint32_t shard)
{
    char file[32];
    snprintf(file, sizeof file, "shard-%04u.h5", shard);
    return in_folder(file);
}

static const char *folder(void)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%08d", to, NUMBER);
    return path;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Everything that HDF5 might print goes to this file, which must stay empty. */
static void make_folder(void)
{
    snprintf(to, sizeof to, "%s", unit_path("to"));
    ck_ok(tr_checkpoint_make(to, NUMBER));
    snprintf(name, sizeof name, "%s/stderr", to);
    ck_assert_ptr_nonnull(freopen(name, "w", stderr));
}

static void remove_folder(void)
{
    struct stat status;
    ck_assert_int_eq(fflush(stderr), 0);
    snprintf(name, sizeof name, "%s/stderr", to);
    ck_assert(stat(name, &status) == 0 && status.st_size == 0);
    unlink(name);
    ck_ok(tr_checkpoint_remove(to, NUMBER, true));
    ck_assert_msg(rmdir(to) == 0, "something was left in %s", to);
}

UNIT_FIXTURE(make_folder, remove_folder)

/* ---- some parts ---- */

/* Of shard s: every third pair of rows of a matrix that is cut at a column, lists, a common part, bytes of its own. */
struct parts {
    struct tr_part part[PARTS];
    struct tr_row_run pairs[ROWS], all, own_run;
    float left[ROWS * CUT], right[ROWS * (COLUMNS - CUT)];
    int32_t lists[ROWS * 3];
    uint64_t begin[ROWS + 1];
    double common[7];
    int64_t one[ROWS];
    char own[11];
};

static float element(uint64_t row, uint64_t column)
{
    return (float)(row * 10 + column);
}

static void fill_matrix(struct parts *p, uint32_t s)
{
    size_t left = 0, right = 0, rows = 0, runs = 0;
    for (uint64_t first = s * 2; first < ROWS; first += SHARDS * 2, runs++) {
        p->pairs[runs] = (struct tr_row_run){first, 2};
        for (uint64_t row = first; row < first + 2; row++, rows++) {
            for (uint64_t c = 0; c < CUT; c++) p->left[left++] = element(row, c);
            for (uint64_t c = CUT; c < COLUMNS; c++) p->right[right++] = element(row, c);
            p->one[rows] = (int64_t)row - 3;
            p->begin[rows + 1] = p->begin[rows] + row % 4;
        }
    }
    for (uint64_t i = 0; i < p->begin[rows]; i++) p->lists[i] = (int32_t)(i + s * 1000);
    struct tr_part *part = p->part;
    part[0] = (struct tr_part){"tables/w", TR_PART_ROWS, TR_PART_F32, ROWS, COLUMNS, 0,
                               CUT,        runs,         p->pairs,    rows, NULL,    p->left};
    part[1] = part[0];
    part[1].first_column = CUT;
    part[1].columns = COLUMNS - CUT;
    part[1].data = p->right;
    part[2] = (struct tr_part){"stage/lists", TR_PART_LISTS, TR_PART_I32, ROWS,     0,       0, 0,
                               runs,          p->pairs,      rows,        p->begin, p->lists};
    part[3] =
        (struct tr_part){"one", TR_PART_ROWS, TR_PART_I64, ROWS, 1, 0, 1, runs, p->pairs, rows, NULL, p->one};
}

/* Rank 0 has the common part; rank 2 has no rows of the last one. */
static void fill_parts(struct parts *p, uint32_t s)
{
    memset(p, 0, sizeof *p);
    fill_matrix(p, s);
    for (int i = 0; i < 7; i++) p->common[i] = i * 0.5;
    memcpy(p->own, "own bytes ", 11);
    p->own[9] = (char)('0' + s);
    p->all = (struct tr_row_run){0, s == 0 ? 7 : 0};
    p->own_run = (struct tr_row_run){0, 11};
    p->part[4] = (struct tr_part){"stage/common", TR_PART_COMMON, TR_PART_F64, 7,    1,        0, 1,
                                  s == 0,         &p->all,        p->all.n,    NULL, p->common};
    p->part[5] =
        (struct tr_part){"stage", TR_PART_OWN, TR_PART_U8, 11, 1, 0, 1, 1, &p->own_run, 11, NULL, p->own};
}

static struct tr_shard_head head_of(uint32_t shard)
{
    return (struct tr_shard_head){RUN, NUMBER, shard, SHARDS, 0};
}

static void write_shard(uint32_t shard, struct tr_shard_seal *seal)
{
    struct parts p;
    struct tr_shard_head head = head_of(shard);
    fill_parts(&p, shard);
    ck_ok(tr_shard_write(shard_name(shard), &head, p.part, PARTS, false, seal));
}

static void write_checkpoint(struct tr_shard_seal *seal)
{
    for (uint32_t s = 0; s < SHARDS; s++) write_shard(s, &seal[s]);
    struct tr_manifest m = {
        .run = RUN, .number = NUMBER, .job = (char *)"a: 1\n", .shards = SHARDS, .seal = seal};
    m.facts = (struct tr_facts){.stage = "train",
                                .stage_number = 1,
                                .clock = 20,
                                .evaluations = 3,
                                .ranks = 4,
                                .servers = 2,
                                .groups = 2,
                                .group_size = 1,
                                .seconds = 1.5,
                                .epoch = 2.5};
    ck_ok(tr_manifest_write(folder(), &m, true));
}

static void check_values(struct tr_shard *shard, size_t i, const struct tr_part *expected)
{
    size_t size = tr_part_type_size(expected->type);
    uint64_t n = tr_part_elements(expected);
    char *values = malloc(n * size + 1);
    ck_ok(tr_shard_read(shard, i, 0, n, values));
    ck_assert(n == 0 || memcmp(values, expected->data, n * size) == 0);
    if (n > 5) { /* some of them */
        ck_ok(tr_shard_read(shard, i, 2, 3, values));
        ck_assert(memcmp(values, (char *)expected->data + 2 * size, 3 * size) == 0);
    }
    ck_fails(tr_shard_read(shard, i, n, 1, values), TR_ERR_INTERNAL, "beyond the end");
    free(values);
}

static void check_part(const struct tr_part *is, const struct tr_part *expected)
{
    ck_assert_str_eq(is->name, expected->name);
    ck_assert(is->kind == expected->kind && is->type == expected->type && is->runs == expected->runs);
    ck_assert(is->total_rows == expected->total_rows && is->total_columns == expected->total_columns);
    ck_assert(is->first_column == expected->first_column && is->columns == expected->columns);
    ck_assert(is->rows == expected->rows && !is->data && !is->begin == !expected->begin);
    ck_assert(is->runs == 0 || memcmp(is->run, expected->run, is->runs * sizeof *is->run) == 0);
    if (is->begin) ck_assert(memcmp(is->begin, expected->begin, (is->rows + 1) * sizeof *is->begin) == 0);
}

static void check_shard(uint32_t number, const struct tr_shard_seal *seal)
{
    struct tr_shard *shard;
    struct tr_shard_head head = head_of(number);
    struct parts p;
    fill_parts(&p, number);
    ck_ok(tr_shard_open(shard_name(number), &head, seal, &shard));
    ck_assert_uint_eq(shard->parts, PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        check_part(&shard->part[i], &p.part[i]);
        check_values(shard, i, &p.part[i]);
    }
    tr_shard_close(&shard);
    ck_ok(tr_shard_verify(shard_name(number), &head, seal));
}

UNIT_CASE(what_is_written_reads_back)
{
    struct tr_shard_seal seal[SHARDS];
    write_checkpoint(seal);
    for (uint32_t s = 0; s < SHARDS; s++) {
        check_shard(s, &seal[s]);
        check_shard(s, NULL);
    }
    struct tr_manifest m;
    ck_ok(tr_manifest_read(folder(), &m));
    ck_assert(m.run == RUN && m.number == NUMBER && m.shards == SHARDS);
    ck_assert(memcmp(m.seal, seal, sizeof seal) == 0);
    ck_assert_str_eq(m.job, "a: 1\n");
    ck_assert_str_eq(m.facts.stage, "train");
    ck_assert(m.facts.stage_number == 1 && m.facts.clock == 20 && m.facts.evaluations == 3 &&
              m.facts.ended == 0);
    ck_assert(m.facts.ranks == 4 && m.facts.servers == 2 && m.facts.groups == 2 && m.facts.group_size == 1);
    ck_assert(m.facts.seconds == 1.5 && m.facts.epoch == 2.5);
    tr_manifest_free(&m);
}

/* Values in several pieces, read across their borders in any order. */
UNIT_CASE(pieces_are_read_as_they_are_wanted)
{
    enum { N = 3 * TR_SHARD_PIECE + 17 };
    struct tr_row_run run = {5, N};
    struct tr_part part = {"long", TR_PART_ROWS, TR_PART_I32, N + 9, 1, 0, 1, 1, &run, N, NULL, NULL},
                   twice[2];
    struct tr_shard_head head = {RUN, NUMBER, 0, 1, 0};
    struct tr_shard_seal seal, again;
    struct tr_shard *shard;
    struct tr_rng rng;
    int32_t *values, *read;
    ck_ok(TR_NEW(&values, N));
    ck_ok(TR_NEW(&read, N));
    for (int32_t i = 0; i < N; i++) values[i] = i ^ 0x5a5a;
    part.data = values;
    ck_ok(tr_shard_write(shard_name(0), &head, &part, 1, true, &seal));
    ck_ok(tr_shard_open(shard_name(0), &head, &seal, &shard));
    tr_rng_seed(&rng, 1, 2, 3);
    for (int i = 0; i < 50; i++) {
        uint64_t first = tr_rng_below(&rng, N), n = 1 + tr_rng_below(&rng, i % 2 ? 100 : N - first);
        if (n > N - first) n = N - first;
        ck_ok(tr_shard_read(shard, 0, first, n, read));
        ck_assert(memcmp(read, values + first, n * sizeof *read) == 0);
    }
    tr_shard_close(&shard);
    ck_ok(tr_shard_write(shard_name(0), &head, &part, 1, false, &again)); /* equal parts are equal files */
    ck_assert(seal.bytes == again.bytes && seal.digest == again.digest);
    values[N - 1]++;
    ck_ok(tr_shard_write(shard_name(0), &head, &part, 1, false, &again));
    ck_assert(seal.bytes == again.bytes && seal.digest != again.digest);
    twice[0] = twice[1] = part;
    ck_fails(tr_shard_write(shard_name(1), &head, twice, 2, false, &again), TR_ERR_INTERNAL, "long");
    snprintf(part.name, sizeof part.name, "a b");
    ck_fails(tr_shard_write(shard_name(1), &head, &part, 1, false, &again), TR_ERR_INTERNAL, "a b");
    ck_assert(!is_there(shard_name(1)));
    TR_FREE_ALL(values, read);
}

/* ---- whole tables ---- */

static void read_whole(const char *table, hid_t type, hsize_t elements, void *values)
{
    hid_t file = H5Fopen(in_folder("manifest.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, table, H5P_DEFAULT), space = H5Dget_space(set);
    ck_assert(file >= 0 && set >= 0 && H5Sget_simple_extent_npoints(space) == (hssize_t)elements);
    ck_assert(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
}

static void check_whole(void)
{
    float w[ROWS][COLUMNS];
    int64_t one[ROWS];
    double common[7];
    read_whole("/tables/w", H5T_NATIVE_FLOAT, ROWS * COLUMNS, w);
    read_whole("/one", H5T_NATIVE_INT64, ROWS, one);
    read_whole("/stage/common", H5T_NATIVE_DOUBLE, 7, common);
    for (uint64_t row = 0; row < ROWS; row++) {
        for (uint64_t c = 0; c < COLUMNS; c++) ck_assert_float_eq(w[row][c], element(row, c));
        ck_assert_int_eq(one[row], (int64_t)row - 3);
    }
    for (int i = 0; i < 7; i++) ck_assert_double_eq(common[i], i * 0.5);
}

/* What h5dump prints, if there is one. */
static char *dump(const char *arguments, const char *file)
{
    char command[256];
    char *text = NULL;
    size_t length = 0, n;
    snprintf(command, sizeof command, "command -v h5dump >/dev/null && h5dump %s %s", arguments,
             in_folder(file));
    FILE *in = popen(command, "r"), *out = open_memstream(&text, &length);
    char buffer[4096];
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, n, out);
    pclose(in);
    fclose(out);
    return text;
}

UNIT_CASE(the_manifest_shows_whole_tables)
{
    struct tr_shard_seal seal[SHARDS];
    char old[64];
    write_checkpoint(seal);
    check_whole();
    snprintf(old, sizeof old, "%s", to);
    strcat(to, "-moved");
    ck_assert_int_eq(rename(old, to), 0); /* it can be moved */
    check_whole();
    char *heads = dump("-H", "manifest.h5"), *values = dump("-y -d /tables/w", "manifest.h5");
    char *shard = dump("-A", "shard-0001.h5");
    if (*heads) {
        ck_assert_msg(strstr(heads, "GROUP \"tables\"") && strstr(heads, "DATASET \"w\"") &&
                          strstr(heads, "DATASET \"job\"") && strstr(heads, "ATTRIBUTE \"clock\""),
                      "%s", heads);
        ck_assert_msg(strstr(values, "390, 391, 392, 393, 394"), "%s", values);
        ck_assert_msg(strstr(shard, "GROUP \"w@3\"") && strstr(shard, "\"rows\"") &&
                          strstr(shard, "\"total_rows\""),
                      "%s", shard);
    }
    TR_FREE_ALL(heads, values, shard);
}

/* Rows in an order for which HDF5 has no selection, and too many to be shown. */
static void write_scattered(size_t runs)
{
    struct tr_row_run *run;
    int32_t *values;
    struct tr_shard_head head = {RUN, NUMBER, 0, 1, 0};
    struct tr_shard_seal seal;
    ck_ok(TR_NEW(&run, runs));
    ck_ok(TR_NEW(&values, runs * 3));
    struct tr_part part = {"scattered", TR_PART_ROWS, TR_PART_I32, runs * 10, 1,    0,
                           1,           runs,         run,         0,         NULL, NULL};
    for (size_t i = 0; i < runs; i++) {
        run[i] = (struct tr_row_run){i * 10 + i % 5, 1 + i % 3};
        for (size_t k = 0; k < run[i].n; k++) values[part.rows++] = (int32_t)(run[i].first + k);
    }
    part.data = values;
    ck_ok(tr_shard_write(shard_name(0), &head, &part, 1, false, &seal));
    struct tr_manifest m = {.run = RUN, .number = NUMBER, .shards = 1, .seal = &seal};
    ck_ok(tr_manifest_write(folder(), &m, false));
    TR_FREE_ALL(run, values);
}

UNIT_CASE(scattered_rows_show_unless_there_are_too_many)
{
    enum { RUNS = 100 };
    int32_t all[RUNS * 10];
    write_scattered(RUNS);
    read_whole("/scattered", H5T_NATIVE_INT32, RUNS * 10, all);
    for (int i = 0; i < RUNS * 10; i++) {
        int at = i / 10 % 5, n = 1 + i / 10 % 3;
        ck_assert_int_eq(all[i], i % 10 >= at && i % 10 < at + n ? i : 0);
    }
    write_scattered(TR_MANIFEST_RUNS + 1);
    hid_t file = H5Fopen(in_folder("manifest.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    ck_assert(file >= 0 && H5Lexists(file, "scattered", H5P_DEFAULT) == 0);
    H5Fclose(file);
    struct tr_manifest m;
    ck_ok(tr_manifest_read(folder(), &m));
    tr_manifest_free(&m);
}

/* ---- damage ---- */

/* One line that begins with the file's name. */
static void check_text(const char *path)
{
    const char *text = tr_error_text();
    ck_assert_msg(strncmp(text, path, strlen(path)) == 0 && !strchr(text, '\n'), "«%s»", text);
}

static int read_manifest(const char *path)
{
    struct tr_manifest m;
    int status = tr_manifest_read(folder(), &m);
    if (status == TR_OK) tr_manifest_free(&m);
    return status;
}

static int verify_shard(const char *path)
{
    return tr_shard_verify(path, NULL, NULL);
}

/* Each byte in turn, one bit or all of it; then cut off at every length of a page, and around its end. */
static void damage(const char *file, int (*check)(const char *path))
{
    char path[160];
    snprintf(path, sizeof path, "%s", in_folder(file));
    size_t n;
    char *bytes = unit_read(path, &n);
    ck_assert(check(path) == TR_OK);
    int fd = open(path, O_WRONLY);
    for (size_t i = 0; i < n; i++) {
        char bad = (char)(bytes[i] ^ (i % 3 == 0 ? 0xff : 1 << i % 8));
        ck_assert(pwrite(fd, &bad, 1, (off_t)i) == 1);
        int status = check(path);
        ck_assert_msg(status == TR_ERR_DATA, "%s, byte %zu: status %d", file, i, status);
        check_text(path);
        ck_assert(pwrite(fd, &bytes[i], 1, (off_t)i) == 1);
    }
    close(fd);
    for (size_t length = 0; length < n; length += length < 200 || length + 200 > n ? 1 : 97) {
        unit_write(path, bytes, length);
        int status = check(path);
        ck_assert_msg(status == TR_ERR_DATA, "%s, %zu bytes: status %d", file, length, status);
        check_text(path);
        ck_assert(strstr(tr_error_text(), length == 0 ? "empty" : "cut off"));
    }
    unit_write(path, bytes, n);
    ck_assert(truncate(path, (off_t)n + 1) == 0);
    ck_fails(check(path), TR_ERR_DATA, "bytes, expected");
    unit_write(path, bytes, n);
    ck_assert(check(path) == TR_OK);
    free(bytes);
}

UNIT_CASE(no_damage_goes_unnoticed)
{
    struct tr_shard_seal seal[SHARDS];
    write_checkpoint(seal);
    damage("shard-0001.h5", verify_shard);
    damage("manifest.h5", read_manifest);
}

/* A bit of the values does no harm to other values. */
UNIT_CASE(damaged_values_are_named)
{
    enum { N = 2 * TR_SHARD_PIECE };
    struct tr_row_run run = {0, N};
    struct tr_part part = {"tables/w", TR_PART_ROWS, TR_PART_U8, N, 1, 0, 1, 1, &run, N, NULL, NULL};
    struct tr_shard_head head = {RUN, NUMBER, 0, 1, 0};
    struct tr_shard_seal seal;
    struct tr_shard *shard;
    char *values;
    ck_ok(TR_NEW(&values, N));
    memset(values, 'x', N);
    part.data = values;
    ck_ok(tr_shard_write(shard_name(0), &head, &part, 1, false, &seal));
    size_t n;
    char *bytes = unit_read(shard_name(0), &n);
    char *first = memmem(bytes, n, "xxxxxxxx", 8);
    first[TR_SHARD_PIECE + 5] = 'y';
    unit_write(shard_name(0), bytes, n);
    ck_ok(tr_shard_open(shard_name(0), &head, &seal, &shard));
    ck_ok(tr_shard_read(shard, 0, 3, TR_SHARD_PIECE - 3, values));
    ck_fails(tr_shard_read(shard, 0, 3, TR_SHARD_PIECE, values), TR_ERR_DATA,
             "elements 262144 to 524287 of tables/w do not match their checksum");
    ck_fails(tr_shard_read(shard, 0, TR_SHARD_PIECE, TR_SHARD_PIECE, values), TR_ERR_DATA, "damaged");
    check_text(shard_name(0));
    tr_shard_close(&shard);
    ck_fails(tr_shard_verify(shard_name(0), &head, &seal), TR_ERR_DATA, "damaged");
    TR_FREE_ALL(bytes, values);
}

static void raise_version(const char *path)
{
    size_t n;
    char *bytes = unit_read(path, &n);
    bytes[24]++;
    unit_write(path, bytes, n);
    free(bytes);
}

UNIT_CASE(what_is_something_else_is_refused)
{
    struct tr_shard_seal seal[SHARDS], other;
    struct tr_shard_head head = head_of(0), of_run = head, later = head;
    struct tr_shard *shard;
    write_checkpoint(seal);
    of_run.run++;
    later.number++;
    other = seal[0];
    other.digest++;
    ck_assert(mkfifo(shard_name(8), 0600) == 0);
    const struct {
        const char *file;
        const struct tr_shard_head *head;
        int status;
        const char *reason;
    } bad[] = {{"shard-0000.h5", &of_run, TR_ERR_DATA, "of run 000000000000004d"},
               {"shard-0000.h5", &later, TR_ERR_DATA, "of checkpoint 12, expected 13"},
               {"shard-0001.h5", &head, TR_ERR_DATA, "shard 1 of 3, expected shard 0 of 3"},
               {"shard-0007.h5", &head, TR_ERR_NO_INPUT, "No such file"},
               {"", &head, TR_ERR_NO_INPUT, "not a file"},
               {"shard-0008.h5", &head, TR_ERR_NO_INPUT, "not a file"},
               {"manifest.h5", &head, TR_ERR_DATA, "format trireme-shard"}};
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_fails(tr_shard_open(in_folder(bad[i].file), bad[i].head, NULL, &shard), bad[i].status,
                 bad[i].reason);
    ck_fails(tr_shard_open(shard_name(0), &head, &other, &shard), TR_ERR_DATA,
             "not the file that the manifest");
    raise_version(shard_name(0));
    ck_fails(tr_shard_open(shard_name(0), &head, NULL, &shard), TR_ERR_DATA, "format version 3, expected 2");
    raise_version(in_folder("manifest.h5"));
    ck_fails(read_manifest(NULL), TR_ERR_DATA, "format version 4, expected 3");
    unlink(in_folder("manifest.h5"));
    ck_fails(read_manifest(NULL), TR_ERR_NO_INPUT, "manifest.h5: No such file");
    ck_assert(mkdir(in_folder("manifest.h5"), 0777) == 0);
    ck_fails(read_manifest(NULL), TR_ERR_NO_INPUT, "manifest.h5: not a file");
    ck_assert(rmdir(in_folder("manifest.h5")) == 0);
    struct tr_manifest m = {.run = RUN, .number = NUMBER, .shards = SHARDS, .seal = seal};
    unlink(shard_name(2));
    ck_fails(tr_manifest_write(folder(), &m, false), TR_ERR_DATA, "format version 3"); /* the first shard's */
    write_shard(0, &seal[0]);
    ck_fails(tr_manifest_write(folder(), &m, false), TR_ERR_NO_INPUT, "shard-0002.h5: No such file");
    ck_assert(!is_there(in_folder("manifest.h5")));
}

/* ---- disks that fail ---- */

/* More than there is room for, and after that as much as there is. */
static void write_too_much(const char *path, const char *reason)
{
    enum { N = 600000 };
    struct tr_row_run run = {0, N};
    struct tr_part part = {"tables/w", TR_PART_ROWS, TR_PART_F32, N, 1, 0, 1, 1, &run, N, NULL, NULL};
    struct tr_shard_head head = head_of(0);
    struct tr_shard_seal seal;
    float *values;
    ck_ok(TR_NEW(&values, N));
    part.data = values;
    for (int i = 0; i < 3; i++) {
        ck_fails(tr_shard_write(path, &head, &part, 1, i % 2, &seal), TR_ERR_IO, reason);
        check_text(path);
        ck_assert(!is_there(path));
    }
    run.n = part.rows = 1000;
    ck_ok(tr_shard_write(path, &head, &part, 1, true, &seal));
    ck_ok(tr_shard_verify(path, &head, &seal));
    ck_assert_int_eq(unlink(path), 0);
    free(values);
}

UNIT_CASE(limits_of_a_process_are_errors)
{
    struct rlimit old, limit;
    ck_assert(getrlimit(RLIMIT_FSIZE, &old) == 0);
    limit = old;
    limit.rlim_cur = 1 << 20;
    ck_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    write_too_much(shard_name(0), "ulimit -f");
    ck_assert(setrlimit(RLIMIT_FSIZE, &old) == 0);
}

/* A small file system of our own: for root alone. */
UNIT_CASE(full_disks_are_errors)
{
    char path[160];
    snprintf(path, sizeof path, "%s/disk", to);
    ck_assert(mkdir(path, 0777) == 0);
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("none", path, "tmpfs", 0, "size=1m") == 0) {
        char shard[200];
        snprintf(shard, sizeof shard, "%s/shard-0000.h5", path);
        write_too_much(shard, "No space left on device");
        ck_assert(umount(path) == 0);
    }
    ck_assert(rmdir(path) == 0);
}

UNIT_CASE(what_cannot_be_created_is_an_error)
{
    struct tr_shard_head head = head_of(0);
    struct tr_shard_seal seal = {0};
    struct tr_manifest m = {.run = RUN, .number = NUMBER, .shards = 0, .seal = &seal};
    ck_fails(tr_shard_write("/tmp/no/such/folder/shard-0000.h5", &head, NULL, 0, true, &seal),
             TR_ERR_NO_OUTPUT, "shard-0000.h5: cannot be created: No such file");
    ck_fails(tr_shard_write(folder(), &head, NULL, 0, true, &seal), TR_ERR_NO_OUTPUT, "Is a directory");
    ck_fails(tr_manifest_write("/tmp/no/such/folder", &m, true), TR_ERR_NO_OUTPUT, "manifest.h5");
    ck_assert(mkdir(in_folder("manifest.h5"), 0777) == 0);
    ck_fails(tr_manifest_write(folder(), &m, true), TR_ERR_IO, "manifest.h5: cannot be written");
    ck_assert(rmdir(in_folder("manifest.h5")) == 0 && access(in_folder("manifest.h5.part"), F_OK) != 0);
}

#ifdef TR_FAULTS
/* In a process of its own, which has its own faults: 0 if all is as it should be, 1 if nothing failed. */
static int write_with_fault(const char *fault)
{
    struct tr_shard_seal seal[SHARDS];
    struct tr_shard_head head = head_of(0);
    struct tr_manifest m = {.run = RUN, .number = NUMBER, .shards = 1, .seal = seal};
    struct parts p;
    fill_parts(&p, 0);
    setenv("TRIREME_FAULT", fault, 1);
    head.shards = 1;
    if (tr_shard_write(shard_name(0), &head, p.part, PARTS, false, seal) != TR_OK) {
        check_text(shard_name(0));
        ck_assert(!is_there(shard_name(0)));
        return tr_shard_write(shard_name(0), &head, p.part, PARTS, false, seal);
    }
    ck_ok(tr_shard_verify(shard_name(0), &head, seal));
    if (tr_manifest_write(folder(), &m, false) != TR_OK) {
        check_text(in_folder("manifest.h5"));
        ck_assert(!is_there(in_folder("manifest.h5")) && !is_there(in_folder("manifest.h5.part")));
        return tr_manifest_write(folder(), &m, false);
    }
    ck_ok(read_manifest(NULL));
    return 1;
}

static int in_process(const char *fault)
{
    int status;
    unlink(in_folder("manifest.h5"));
    unlink(shard_name(0));
    pid_t child = fork();
    if (child == 0) exit(write_with_fault(fault)); /* with all that HDF5 does at the end */
    ck_assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

UNIT_CASE(any_write_may_fail)
{
    char fault[64];
    int visits = 1, outcome = 0;
    for (; visits < 200 && outcome == 0; visits++) {
        snprintf(fault, sizeof fault, "checkpoint.write=%s:#%d", visits % 2 ? "enospc" : "eio", visits);
        outcome = in_process(fault);
    }
    ck_assert_msg(outcome == 1 && visits > 20, "%d at %d", outcome, visits);
    ck_assert_int_eq(in_process("checkpoint.write=short:1"), 1); /* which is no failure */
    ck_assert_int_eq(in_process("checkpoint.manifest=eio:#1"), 0);
}
#else
UNIT_CASE(any_write_may_fail) {}
#endif

/* ---- folders ---- */

/* The path of a file of the checkpoint. */
static const char *of(uint64_t number, const char *file)
{
    snprintf(name, sizeof name, "%s/%08lu/%s", to, number, file);
    return name;
}

static void touch(uint64_t number, const char *file)
{
    unit_write(of(number, file), "x", 1);
}

static void expect_numbers(size_t n, const uint64_t *expected)
{
    uint64_t *number;
    size_t found;
    ck_ok(tr_checkpoints_list(to, &number, &found));
    ck_assert_uint_eq(found, n);
    for (size_t i = 0; i < n; i++) ck_assert_uint_eq(number[i], expected[i]);
    free(number);
}

UNIT_CASE(folders_are_listed_by_number)
{
    uint64_t *number;
    size_t n;
    ck_ok(tr_checkpoint_make(to, 123456789012));
    ck_ok(tr_checkpoint_make(to, 3));
    const char *others[] = {"0000001", "000000001",    "0000000x",
                            "notes",   "00000009.old", "99999999999999999999"};
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(name, sizeof name, "%s/%s", to, others[i]);
        ck_assert(mkdir(name, 0777) == 0);
    }
    snprintf(name, sizeof name, "%s/00000044", to);
    unit_write(name, "a file", 6);
    expect_numbers(3, (uint64_t[]){123456789012, NUMBER, 3});
    ck_fails(tr_checkpoints_list(name, &number, &n), TR_ERR_NO_INPUT, "00000044: cannot be read");
    unlink(name);
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(name, sizeof name, "%s/%s", to, others[i]);
        ck_assert(rmdir(name) == 0);
    }
    ck_fails(tr_checkpoint_make(to, 3), TR_ERR_NO_OUTPUT, "00000003: cannot be made: File exists");
    ck_ok(tr_checkpoint_remove(to, 123456789012, true));
    ck_ok(tr_checkpoint_remove(to, 3, true));
    ck_ok(tr_checkpoint_remove(to, 4, true)); /* which is not there */
    ck_ok(tr_checkpoints_list("/tmp/no/such/folder", &number, &n));
    ck_assert_uint_eq(n, 0);
    free(number);
}

UNIT_CASE(folders_are_made_with_those_above)
{
    char above[40];
    ck_assert(snprintf(above, sizeof above, "%s", to) < (int)sizeof above);
    strcat(to, "/a//b/");
    ck_ok(tr_checkpoint_make(to, 1));
    touch(1, "shard-0000.h5");
    ck_ok(tr_checkpoint_remove(to, 1, true));
    ck_assert(rmdir(to) == 0);
    snprintf(to, sizeof to, "%s/a", above);
    ck_assert(rmdir(to) == 0);
    unit_write(to, "", 0);
    ck_fails(tr_checkpoint_make(to, 1), TR_ERR_NO_OUTPUT, "a: is a file, expected a folder");
    unlink(to);
    snprintf(to, sizeof to, "%s", above);
}

/* As jobs that clean up after others: a folder that was just created is empty, too. */
UNIT_CASE(folders_are_made_beside_who_removes_empty_ones)
{
    enum { FOLDERS = 20000 };
    char path[96], gone[96];
    snprintf(path, sizeof path, "%s/kept", to);
    snprintf(gone, sizeof gone, "%s/gone", to);
    pid_t cleaner = fork();
    if (cleaner == 0)
        for (;;) (void)rmdir(path);
    ck_assert_int_gt(cleaner, 0);
    for (int i = 0; i < FOLDERS; i++) {
        ck_ok(tr_persistent_make(path));
        if (rename(path, gone) == 0) rmdir(gone);
    }
    kill(cleaner, SIGKILL);
    ck_assert_int_eq(waitpid(cleaner, NULL, 0), cleaner);
    rmdir(path);
}

UNIT_CASE(old_checkpoints_are_pruned)
{
    touch(NUMBER, "shard-0000.h5"); /* in the making */
    for (uint64_t number = 1; number <= 6; number++) {
        ck_ok(tr_checkpoint_make(to, number));
        touch(number, "shard-0000.h5");
        if (number != 4) touch(number, "manifest.h5");
    }
    touch(2, "notes.txt");
    touch(1, "shard-10000.h5");
    touch(1, "manifest.h5.part");
    ck_fails(tr_checkpoints_prune(to, 2), TR_ERR_IO, "00000002: the folder stays");
    expect_numbers(4, (uint64_t[]){NUMBER, 6, 5, 2});
    ck_assert(!is_there(of(2, "manifest.h5")) && errno == ENOENT);
    ck_assert(is_there(of(2, "notes.txt")));
    ck_ok(tr_checkpoints_prune(to, 2)); /* told once: it is none of ours any more */
    ck_fails(tr_checkpoint_remove(to, 2, true), TR_ERR_IO, "files in it that are none of a checkpoint");
    unlink(of(2, "notes.txt"));
    touch(2, "shard-00001.h5"); /* not as we write it */
    touch(2, "shard-1.h5.bak");
    ck_ok(tr_checkpoints_prune(to, 1));
    expect_numbers(3, (uint64_t[]){NUMBER, 6, 2});
    unlink(of(2, "shard-00001.h5"));
    unlink(of(2, "shard-1.h5.bak"));
    ck_ok(tr_checkpoint_remove(to, 2, true));
    ck_ok(tr_checkpoint_remove(to, 6, true));
}

/* One request may arrive by two ways at the same time. */
UNIT_CASE(only_a_second_wish_to_end_ends)
{
    int how;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        tr_signals_handle(TR_SIGNALS_ASK, true);
        tr_signals_handle(TR_SIGNALS_END, true);
        raise(SIGTERM);
        raise(SIGTERM);
        if (!tr_signals_stop()) _exit(1);
        tr_sleep(1.2);
        raise(SIGTERM);
        _exit(2);
    }
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
}
