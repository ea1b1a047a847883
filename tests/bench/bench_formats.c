/* Times the readers of csv, ratings and docword alone: bench_formats FORMAT FILE REPEATS prints rows or records, numbers
 * and MB/s of each repeat. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/reader.h"
#include "data/reader.h"

static int read_csv(const struct tr_files *files, const struct tr_head *shape, struct tr_read_report *report)
{
    struct tr_reader_options options = {.format = TR_FORMAT_CSV, .heads = shape};
    struct tr_matrix dense;
    TR_TRY(tr_read_matrix(files, 0, 1, &options, &dense, report));
    tr_matrix_free(&dense);
    return TR_OK;
}

static int read_triples(const struct tr_files *files, const struct tr_head *shape, int format,
                        struct tr_read_report *report)
{
    struct tr_reader_options options = {.format = format, .heads = shape};
    struct tr_read_report r = {.text_rows = true};
    struct tr_triples triples = {0};
    while (r.text_rows || r.text_columns) {
        tr_triples_free(&triples);
        TR_TRY(tr_read_triples(files, 0, 1, &options, &triples, &r));
        options.text_rows |= r.text_rows;
        options.text_columns |= r.text_columns;
    }
    *report = r;
    tr_triples_free(&triples);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s csv|ratings|docword FILE REPEATS\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct tr_files files;
    struct tr_head *shape;
    int format = strcmp(argv[1], "csv") == 0       ? TR_FORMAT_CSV
                 : strcmp(argv[1], "ratings") == 0 ? TR_FORMAT_RATINGS
                                                   : TR_FORMAT_DOCWORD;
    TR_TRY(tr_files_open(argv + 2, 1, &files));
    TR_TRY(tr_heads_read(&files, format, TR_HEADER_AUTO, &shape));
    for (int i = 0; i < atoi(argv[3]); i++) {
        struct tr_read_report report;
        double begin = tr_now();
        TR_TRY(format == TR_FORMAT_CSV ? read_csv(&files, shape, &report)
                                       : read_triples(&files, shape, format, &report));
        double seconds = tr_now() - begin;
        printf("%llu %llu %.1f\n", (unsigned long long)report.rows, (unsigned long long)report.nonzeros,
               (double)report.text_bytes / 1e6 / seconds);
    }
    tr_files_close(&files);
    free(shape);
    return TR_OK;
}
