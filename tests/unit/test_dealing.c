/* How files are divided among readers, in contiguous shares or dealt in chunks: each line goes to one reader, all have about as
 * much to do, and each has a sample of a sorted file. */
#include "reading.h"

/* ---- division ---- */

/* Numbered lines of very different length; line i has label i. */
static size_t numbered_lines(char *text, size_t room, size_t first, size_t *lines)
{
    size_t n = 0, i = first;
    for (; n + 3000 < room; i++) {
        n += (size_t)sprintf(text + n, "%zu", i);
        size_t pairs = tr_mix(i) % 16 == 0 ? 200 : tr_mix(i) % 8;
        for (size_t k = 1; k <= pairs; k++) n += (size_t)sprintf(text + n, " %zu:1", k);
        n += (size_t)sprintf(text + n, "\n");
    }
    *lines = i - first;
    return n;
}

/* Every line goes to exactly one reader, and the lines of a reader ascend, in each of two laps if they are dealt.
 * deal: as in the options. */
static void check_dealing(size_t lines, size_t readers, uint64_t deal, size_t chunk_bytes)
{
    struct tr_reader_options options = {
        .format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = deal, .chunk_bytes = chunk_bytes};
    unsigned char *seen;
    ck_ok(TR_NEW(&seen, lines));
    for (size_t k = 0; k < readers; k++) {
        size_t descents = 0;
        ck_ok(read_share(k, readers, options));
        for (size_t i = 0; i < matrix.rows; i++) {
            ck_assert_uint_lt((size_t)matrix.label[i], lines);
            seen[(size_t)matrix.label[i]]++;
            descents += i > 0 && matrix.label[i - 1] >= matrix.label[i];
        }
        ck_assert_uint_le(descents, deal > 0 && readers > 1);
    }
    for (size_t i = 0; i < lines; i++)
        ck_assert_msg(seen[i] == 1, "line %zu was read %d times by %zu readers, deal %llu, chunks of %zu", i,
                      seen[i], readers, (unsigned long long)deal, chunk_bytes);
    free(seen);
}

/* Contiguous shares, then chunks as they are chosen, then others. */
static void check_division(size_t lines, size_t readers, size_t chunk_bytes)
{
    const uint64_t deal[] = {0, tr_files_chunk(&files, readers), 1000, 4099, files.total};
    for (size_t i = 0; i < COUNT(deal); i++) check_dealing(lines, readers, deal[i], chunk_bytes);
}

UNIT_CASE(plain_files_are_divided)
{
    static char text[100000];
    size_t lines, more;
    size_t n = numbered_lines(text, sizeof text, 0, &lines);
    unit_write("plain-1", text, n - 1); /* no newline at the end */
    n = numbered_lines(text, 30000, lines, &more);
    unit_write("plain-2", text, n);
    open_files("plain-*");
    for (size_t readers = 1; readers <= 7; readers++) {
        check_division(lines + more, readers, 0);
        check_division(lines + more, readers, 1 + readers * 3);
    }
}

UNIT_CASE(few_lines_are_divided_at_every_byte)
{
    const char text[] = "0 1:1\n1 1:1 2:1\n2\n3\n\n\n4 1:1";
    unit_write("few", text, sizeof text - 1);
    open_files("few");
    for (size_t readers = 1; readers <= 60; readers++) check_dealing(5, readers, 0, 1);
}

UNIT_CASE(few_lines_are_dealt_at_every_byte)
{
    const char text[] = "# c\r\n0 1:1\r\n\r\n1 1:1 2:1 3:1 # 7 1:1\n2\n\n\n3\n #\n4 1:1\n", more[] = "5\n\n6";
    unit_write("deal-1", text, sizeof text - 1);
    unit_write("deal-2", "", 0);
    unit_write("deal-3", "5", 1);
    unit_write("deal-4", more + 2, sizeof more - 3);
    open_files("deal-*");
    for (size_t readers = 1; readers <= 6; readers++)
        for (uint64_t deal = 1; deal <= files.total + 1; deal++) {
            check_dealing(7, readers, deal, 1);
            check_dealing(7, readers, deal, 5);
            check_dealing(7, readers, deal, 0);
        }
}

/* Numbered lines, most of them short, with all that may stand between records. */
static size_t mixed_lines(char *text, size_t room, uint64_t seed, size_t *lines)
{
    static const char *const between[] = {"\n",   "\n",          "\n",       "\r\n",
                                          "\n\n", "\n# 1 2:3\n", " # x\r\n", "\n \t\n"};
    struct tr_rng rng;
    size_t n = 0, i = 0;
    tr_rng_seed(&rng, seed, 0, 0);
    for (; n + 9000 < room; i++) {
        n += (size_t)sprintf(text + n, "%zu", i);
        size_t pairs = tr_rng_below(&rng, 50) == 0 ? tr_rng_below(&rng, 1000) : tr_rng_below(&rng, 4);
        for (size_t k = 1; k <= pairs; k++) n += (size_t)sprintf(text + n, " %zu:1", k);
        n += (size_t)sprintf(text + n, "%s", between[tr_rng_below(&rng, COUNT(between))]);
    }
    *lines = i;
    return n - (seed % 2 && text[n - 1] == '\n'); /* half of them without the last newline */
}

UNIT_CASE(any_lines_are_dealt_in_chunks_of_any_size)
{
    static char text[30000];
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    for (uint64_t seed = 0; seed < 60; seed++) {
        size_t lines, n = mixed_lines(text, 10000 + seed * 300, seed, &lines);
        unit_write("mixed", text, n);
        write_gzip("mixed.gz", "wb", text, n);
        open_files("mixed");
        size_t readers = 1 + (size_t)tr_rng_below(&rng, 9), parsed = (size_t)tr_rng_below(&rng, 300);
        check_dealing(lines, readers, 1 + tr_rng_below(&rng, 100), parsed);
        check_dealing(lines, readers, 1 + tr_rng_below(&rng, 6000), parsed);
        check_division(lines, readers, 0);
        open_files("mixed.gz");
        check_division(lines, readers, parsed);
    }
}

UNIT_CASE(gzip_files_are_dealt_in_pieces)
{
    static char text[5000000];
    size_t lines, n = numbered_lines(text, sizeof text, 0, &lines), half = n / 2 + 7;
    write_gzip("dealt", "wb", text, half); /* two members, the border inside a line */
    write_gzip("dealt", "ab", text + half, n - half);
    open_files("dealt");
    ck_assert(files.file[0].packing == TR_GZIP);
    for (size_t readers = 1; readers <= 7; readers++)
        check_dealing(lines, readers, readers % 2 ? tr_files_chunk(&files, readers) : 0, 0);
    check_dealing(lines, 3, 1000, 100);
}

UNIT_CASE(a_line_longer_than_pieces_goes_to_one_reader)
{
    size_t n = 3500000;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    memset(text, ' ', n);
    memcpy(text, "0 1:1\n1", 7);
    memcpy(text + n - 12, "9:1\n2 1:1\n3\n", 12);
    write_gzip("long", "wb", text, n);
    unit_write("long-plain", text, n);
    for (size_t readers = 1; readers <= 4; readers++) {
        open_files("long");
        check_division(4, readers, 0);
        open_files("long-plain");
        check_division(4, readers, 0);
    }
    free(text);
}

/* ---- purposes of dealing ---- */

UNIT_CASE(chunks_suit_the_data_and_the_readers)
{
    const uint64_t K = 1024, M = K * K, G = K * M;
    static const size_t readers[] = {2, 3, 7, 64, 1000, 20000};
    const uint64_t totals[] = {1, 1000, 100 * K + 1, 3 * M + 7, 350 * M, 20 * G + 3, 9000 * G};
    for (size_t i = 0; i < COUNT(totals); i++) {
        files = (struct tr_files){.total = totals[i]};
        ck_assert_uint_eq(tr_files_chunk(&files, 1), totals[i]);
        for (size_t k = 0; k < COUNT(readers); k++) {
            uint64_t chunk = tr_files_chunk(&files, readers[k]), share = totals[i] / readers[k];
            ck_assert_uint_ge(chunk, share < 4 * K ? 1 : 4 * K);
            ck_assert_uint_lt(chunk, share < 4 * K ? share + 2 : 4 * M + 64 * K);
            if (share >= 256 * K) ck_assert_uint_ge(share / chunk + 1, 64);
            /* The same number for all; the last ones have less because of rounding up. */
            uint64_t rounds = (totals[i] - 1) / chunk / readers[k] + 1;
            ck_assert_uint_lt(rounds * readers[k] * chunk - totals[i], rounds * readers[k]);
        }
    }
}

/* 10 labels one after the other, all lines of equal length. */
enum { SORTED_LABELS = 10, SORTED_ROWS = 80000 };

/* Adds how often each label stands in the first of a reader's rows, this part of them. */
static void add_labels(size_t reader, size_t readers, uint64_t deal, double part, size_t count[SORTED_LABELS])
{
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = deal};
    ck_ok(read_share(reader, readers, options));
    for (size_t i = 0; i < (size_t)(part * (double)matrix.rows); i++) count[(size_t)matrix.label[i]]++;
}

static size_t sorted_lines(char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < SORTED_ROWS; i++)
        n += (size_t)sprintf(text + n, "%zu 1:0.5 %06zu:2 \n", i / (SORTED_ROWS / SORTED_LABELS), 2 + i);
    return n;
}

UNIT_CASE(of_sorted_files_every_reader_has_a_sample)
{
    size_t n, readers = 8, most = SORTED_ROWS / SORTED_LABELS, first[SORTED_LABELS] = {0};
    char *text = malloc(SORTED_ROWS * 32);
    ck_assert_ptr_nonnull(text);
    n = sorted_lines(text);
    unit_write("sorted", text, n);
    write_gzip("sorted.gz", "wb", text, n);
    for (int gzip = 0; gzip < 2; gzip++) {
        open_files(gzip ? "sorted.gz" : "sorted");
        uint64_t deal = tr_files_chunk(&files, readers);
        /* A label has a tenth of all chunks, so a reader 6 or 7 of 64 chunks: never far from its eighth. */
        for (size_t k = 0; k < readers; k++) {
            size_t count[SORTED_LABELS] = {0};
            add_labels(k, readers, deal, 1, count);
            for (size_t label = 0; label < SORTED_LABELS; label++)
                ck_assert(count[label] > most / readers * 7 / 10 && count[label] < most / readers * 13 / 10);
        }
    }
    open_files("sorted");
    add_labels(0, readers, 0, 1, first);
    ck_assert_uint_eq(first[0], most);
    ck_assert_uint_eq(first[2], 0);

    /* at any time readers are at different places */
    size_t count[SORTED_LABELS] = {0}, tenth = SORTED_ROWS / SORTED_LABELS / 10;
    for (size_t k = 0; k < SORTED_LABELS; k++)
        add_labels(k, SORTED_LABELS, tr_files_chunk(&files, SORTED_LABELS), 0.1, count);
    for (size_t label = 0; label < SORTED_LABELS; label++)
        ck_assert(count[label] > tenth * 7 / 10 && count[label] < tenth * 13 / 10);
    free(text);
}

static int keep_progress(void *state, uint64_t bytes)
{
    ck_assert_uint_ge(bytes, *(uint64_t *)state);
    *(uint64_t *)state = bytes;
    return TR_OK;
}

UNIT_CASE(loads_are_equal_over_many_small_files)
{
    static char text[40000];
    size_t lines, readers = 7, total = 0, rows = 0;
    for (size_t i = 0; i < 60; i++) {
        char name[32];
        size_t n = numbered_lines(text, 4000 + tr_mix(i) % 30000, 0, &lines);
        snprintf(name, sizeof name, "small-%zu", i);
        unit_write(name, text, n);
        total += n;
        rows += lines;
    }
    open_files("small-*");
    ck_assert_uint_eq(files.total, total);
    for (int dealt = 0; dealt < 2; dealt++) {
        size_t bytes = 0, read = 0, done = 0;
        for (size_t k = 0; k < readers; k++) {
            uint64_t mine = 0;
            struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM,
                                                .lowest_index = 1,
                                                .deal = dealt ? tr_files_chunk(&files, readers) : 0,
                                                .progress = keep_progress,
                                                .progress_state = &mine};
            ck_ok(read_share(k, readers, options));
            ck_assert_uint_gt(report.text_bytes, total / readers * 9 / 10);
            ck_assert_uint_lt(report.text_bytes, total / readers * 11 / 10);
            bytes += report.text_bytes;
            read += report.rows;
            done += mine;
        }
        ck_assert_uint_eq(bytes, total);
        ck_assert_uint_eq(read, rows);
        ck_assert_uint_eq(done, total);
    }
}

/* The stored bytes of gzip files that a reader unpacks, and of how many files. */
static uint64_t unpacks(size_t reader, size_t readers, uint64_t chunk, size_t *of)
{
    uint64_t bytes = 0;
    *of = 0;
    for (size_t i = 0; i < files.n; i++) {
        struct tr_file_part part;
        if (!tr_files_deal(&files, i, reader, readers, chunk, 0, &part) &&
            !tr_files_deal(&files, i, reader, readers, chunk, 1, &part))
            continue;
        bytes += files.file[i].size;
        ++*of;
    }
    return bytes;
}

/* Each gzip file is dealt to some readers, whose turns are all different. */
static void check_turns(size_t readers, uint64_t chunk)
{
    for (size_t i = 0; i < files.n; i++) {
        uint64_t sum = 0, turns = 0, sharers = 0;
        struct tr_file_part part;
        for (size_t k = 0; k < readers; k++) {
            for (int lap = 0; lap < 2; lap++) {
                if (!tr_files_deal(&files, i, k, readers, chunk, lap, &part)) continue;
                ck_assert_uint_eq(part.stride, part.readers * part.bytes);
                sum += part.end / part.bytes;
                sharers = part.readers;
                turns++;
            }
        }
        ck_assert_uint_ge(turns, 1);
        ck_assert_uint_eq(turns, sharers);
        ck_assert_uint_eq(sum, turns * (turns + 1) / 2);
    }
}

UNIT_CASE(readers_unpack_little_more_than_their_share_of_gzip_files)
{
    static const struct {
        size_t files, readers;
        uint64_t bytes;
        size_t least; /* files of which a reader has something */
    } all[] = {{24, 8, 500 << 20, 3}, {24, 8, 1 << 20, 24}, {1000, 100, 1 << 20, 35},
               {3, 16, 400 << 20, 1}, {1, 5, 3 << 20, 1},   {500, 4, 10000, 125}};
    for (size_t i = 0; i < COUNT(all); i++) {
        files = (struct tr_files){.n = all[i].files, .total = all[i].files * all[i].bytes};
        ck_ok(TR_NEW(&files.file, files.n));
        for (size_t k = 0; k < files.n; k++)
            files.file[k] = (struct tr_file){.size = all[i].bytes, .packing = TR_GZIP};
        uint64_t chunk = tr_files_chunk(&files, all[i].readers), share = files.total / all[i].readers;
        check_turns(all[i].readers, chunk);
        for (size_t k = 0; k < all[i].readers; k++) {
            size_t of;
            ck_assert_uint_le(unpacks(k, all[i].readers, chunk, &of), share + (36 << 20) + 2 * all[i].bytes);
            ck_assert_uint_ge(of, all[i].least);
        }
        free(files.file);
    }
}

UNIT_CASE(dealt_bad_records_are_named_with_their_line)
{
    enum { READERS = 3, DEAL = 64, LINES = 400 };
    static char text[LINES * 32];
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 1, .deal = DEAL};
    for (size_t bad = 1; bad <= LINES; bad += 13) {
        char expected[64];
        size_t n = 0, failed = 0;
        for (size_t line = 1; line <= LINES; line++)
            n += (size_t)sprintf(text + n,
                                 line == bad ? "1 2:x%zu\n"
                                 : line % 5  ? "1 2:3 7:%zu\n"
                                             : "\n",
                                 line);
        unit_write("bad-1", "1 1:1\n1 2:1\n", 12);
        unit_write("bad-2", text, n);
        open_files("bad-*");
        snprintf(expected, sizeof expected, "/bad-2:%zu: '2:x%zu': the value", bad, bad);
        for (size_t k = 0; k < READERS; k++) {
            int status = read_share(k, READERS, options);
            if (status != TR_OK) ck_fails(status, TR_ERR_DATA, expected);
            failed += status != TR_OK;
        }
        ck_assert_uint_eq(failed, 1);
    }
}

/* The rows that `readers` readers get together, of 1000 rows whose labels are their numbers. */
static void find_rows(struct tr_reader_options options, size_t readers, bool found[1000])
{
    memset(found, 0, 1000 * sizeof *found);
    for (size_t reader = 0; reader < readers; reader++) {
        ck_ok(read_share(reader, readers, options));
        for (size_t i = 0; i < matrix.rows; i++) {
            ck_assert(!found[(size_t)matrix.label[i]]);
            found[(size_t)matrix.label[i]] = true;
        }
    }
}

UNIT_CASE(each_row_is_held_out_or_not_for_any_number_of_readers)
{
    char text[16000];
    size_t n = 0;
    for (int i = 0; i < 1000; i++) n += (size_t)sprintf(text + n, "%d 1:2\n", i);
    unit_write("rows", text, n);
    write_gzip("packed", "wb", text, n);
    bool first[1000], others[1000], again[1000];
    for (int packed = 0; packed < 2; packed++) {
        open_files(packed ? "packed" : "rows");
        for (size_t readers = 1; readers <= 5; readers += 2) {
            struct tr_reader_options o = {.format = TR_FORMAT_LIBSVM,
                                          .split = tr_split_of_share(0, 0.2, 3),
                                          .deal = readers == 5 ? 512 : 0};
            find_rows(o, readers, others);
            o.reads_held_out = true;
            find_rows(o, readers, again);
            if (readers == 1 && !packed) memcpy(first, again, sizeof first);
            ck_assert_mem_eq(first, again, sizeof first);
            for (int i = 0; i < 1000; i++) ck_assert(first[i] != others[i]);
            o.split.seed = 4;
            find_rows(o, readers, again);
            ck_assert_mem_ne(first, again, sizeof first);
        }
    }
    int held = 0;
    for (int i = 0; i < 1000; i++) held += first[i];
    ck_assert_int_gt(held, 150);
    ck_assert_int_lt(held, 250);
}
