#include "reading.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

/* ---- packing ---- */

static const enum tr_packing packings[] = {TR_GZIP, TR_BZIP2, TR_XZ, TR_ZSTD, TR_LZ4};
enum { PACKINGS = COUNT(packings) };

static size_t pack(enum tr_packing packing, const char *text, size_t n, char *packed, size_t room)
{
    struct archive *a = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    size_t used = 0;
    archive_write_set_format_raw(a);
    switch (packing) {
    case TR_GZIP: archive_write_add_filter_gzip(a); break;
    case TR_BZIP2: archive_write_add_filter_bzip2(a); break;
    case TR_XZ: archive_write_add_filter_xz(a); break;
    case TR_ZSTD: archive_write_add_filter_zstd(a); break;
    default: archive_write_add_filter_lz4(a);
    }
    ck_assert_int_eq(archive_write_set_bytes_in_last_block(a, 1), ARCHIVE_OK);
    ck_assert_int_eq(archive_write_open_memory(a, packed, room, &used), ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_pathname(entry, "text");
    ck_assert_int_eq(archive_write_header(a, entry), ARCHIVE_OK);
    ck_assert_int_eq((int)archive_write_data(a, text, n), (int)n);
    ck_assert_int_eq(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    archive_entry_free(entry);
    return used;
}

enum { ROWS = 30000, ROOM = 1 << 20 };
static char text[ROOM], packed[2 * ROOM];

static size_t make_text(void)
{
    size_t n = 0;
    for (int i = 0; i < ROWS; i++) n += (size_t)sprintf(text + n, "%d %d:%d.5\n", i % 2, 1 + i % 97, i);
    ck_assert(n < ROOM);
    return n;
}

/* ---- reading ---- */

static int read_packed(size_t reader, size_t readers)
{
    return read_share(reader, readers,
                      (struct tr_reader_options){.format = TR_FORMAT_LIBSVM,
                                                 .lowest_index = 1,
                                                 .deal = tr_files_chunk(&files, readers)});
}

/* All rows, once each, over all readers: a value is the number of its row. */
static void check_rows(const char *name, size_t readers, size_t times)
{
    static unsigned char seen[ROWS];
    open_files(name);
    memset(seen, 0, sizeof seen);
    for (size_t reader = 0; reader < readers; reader++) {
        ck_ok(read_packed(reader, readers));
        for (size_t i = 0; i < matrix.rows; i++) seen[(size_t)matrix.value[matrix.begin[i]]]++;
    }
    for (size_t i = 0; i < ROWS; i++) ck_assert_uint_eq(seen[i], times);
}

UNIT_CASE(packed_files_are_read_by_any_number_of_readers)
{
    size_t n = make_text();
    for (size_t i = 0; i < PACKINGS; i++) {
        unit_write("packed", packed, pack(packings[i], text, n, packed, sizeof packed));
        open_files("packed");
        ck_assert(files.file[0].packing == packings[i]);
        check_rows("packed", 1, 1);
        check_rows("packed", 3, 1);
    }
}

/* As tools that work on several parts of a file at a time write them, and as cat makes them. */
UNIT_CASE(parts_laid_end_to_end_are_one_text)
{
    size_t n = make_text();
    for (size_t i = 0; i < PACKINGS; i++) {
        size_t used = pack(packings[i], text, n, packed, ROOM);
        used += pack(packings[i], text, n, packed + used, ROOM);
        unit_write("packed", packed, used);
        check_rows("packed", 2, 2);
    }
}

static int read_name(const char *name)
{
    open_files(name);
    return read_packed(0, 1);
}

UNIT_CASE(what_is_cut_off_or_damaged_is_refused)
{
    size_t n = make_text();
    for (size_t i = 0; i < PACKINGS; i++) {
        const char *word = tr_packing_word(packings[i]);
        size_t used = pack(packings[i], text, n, packed, sizeof packed);
        const size_t lengths[] = {used - 1, used - 3, used - 10, used / 2, 64, 11, 10, 7, 4, 3};
        for (size_t k = 0; k < COUNT(lengths); k++) {
            unit_write("packed", packed, lengths[k]);
            ck_fails(read_name("packed"), TR_ERR_DATA, "packed: ");
            ck_assert_msg(strstr(tr_error_text(), word), "%s: %s", word, tr_error_text());
            ck_assert_msg(strstr(tr_error_text(), "truncated"), "%s: %zu of %zu: %s", word, lengths[k], used,
                          tr_error_text());
            ck_assert(!strchr(tr_error_text(), '\n'));
        }
        memset(packed + used / 2, 0x55, 100);
        unit_write("packed", packed, used);
        ck_fails(read_name("packed"), TR_ERR_DATA,
                 "packed"); /* of gzip, odd text may come out before that is noticed */
    }
}

UNIT_CASE(a_bad_line_is_named_as_in_plain_text)
{
    size_t n = make_text();
    n += (size_t)sprintf(text + n, "1 x:1\n");
    for (size_t i = 0; i < PACKINGS; i++) {
        unit_write("packed", packed, pack(packings[i], text, n, packed, sizeof packed));
        ck_fails(read_name("packed"), TR_ERR_DATA, "packed:30001: 'x:1'");
    }
}

UNIT_CASE(nothing_may_be_packed)
{
    static const struct {
        size_t n;
        const char *bytes;
    } all[] = {{20, "\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0"},
               {14, "BZh9\x17rE8P\x90\0\0\0\0"},
               {32, "\xfd"
                    "7zXZ\0\0\x04\xe6\xd6\xb4"
                    "F\0\0\0\0\x1c\xdf"
                    "D!\x1f\xb6\xf3}\x01\0\0\0\0\x04YZ"},
               {13, "\x28\xb5\x2f\xfd\x24\0\x01\0\0\x99\xe9\xd8\x51"},
               {15, "\x04\x22\x4d\x18\x64\x40\xa7\0\0\0\0\x05\x5d\xcc\x02"}};
    for (size_t i = 0; i < PACKINGS; i++) {
        unit_write("empty", all[i].bytes, all[i].n);
        open_files("empty");
        ck_assert(files.file[0].packing == packings[i]);
        ck_ok(read_name("empty"));
    }
}

/* ---- folders ---- */

UNIT_CASE(a_folder_means_its_files)
{
    ck_assert_int_eq(mkdir(unit_path("some"), 0777), 0);
    ck_fails(try_files("some"), TR_ERR_NO_INPUT, "some: a folder without files");
    unit_write("some/part-2", "1 1:1\n", 6);
    unit_write("some/part-10", "1 1:1\n", 6);
    unit_write("some/.hidden", "1 1:1\n", 6);
    ck_assert_int_eq(mkdir(unit_path("some/inner"), 0777), 0);
    unit_write("some/inner/part-3", "1 1:1\n", 6);
    ck_ok(try_files("some"));
    ck_assert_uint_eq(files.n, 2);
    ck_assert(strstr(files.file[0].path, "some/part-10") && strstr(files.file[1].path, "some/part-2"));
}
