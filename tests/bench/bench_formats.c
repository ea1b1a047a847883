/* Times the readers of csv, ratings and docword alone: bench_formats FORMAT FILE REPEATS prints rows or records, numbers
 * and MB/s of each repeat. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/csv.h"
#include "data/triples.h"

static int read_csv(const struct tr_files *files, const struct tr_shape *shape,
                    struct tr_read_report *report)
{
    struct tr_csv_options options = {.shape = shape};
    struct tr_dense dense;
    TR_TRY(tr_csv_read(files, 0, 1, &options, &dense, report));
    tr_dense_free(&dense);
    return TR_OK;
}

static int read_triples(const struct tr_files *files, const struct tr_shape *shape, int format,
                        struct tr_read_report *report)
{
    struct tr_triples_options options = {.format = format, .shape = shape};
    struct tr_triples_report r = {.text_rows = true};
    struct tr_triples triples = {0};
    uint64_t *records;
    TR_TRY(TR_NEW(&records, files->n));
    while (r.text_rows || r.text_columns) {
        tr_triples_free(&triples);
        TR_TRY(tr_triples_read(files, 0, 1, &options, &triples, records, &r));
        options.text_rows |= r.text_rows;
        options.text_columns |= r.text_columns;
    }
    *report = (struct tr_read_report){.rows = r.records, .nonzeros = r.records, .text_bytes = r.text_bytes};
    tr_triples_free(&triples);
    free(records);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s csv|ratings|docword FILE REPEATS\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct tr_files files;
    struct tr_shape *shape;
    int format = strcmp(argv[1], "csv") == 0       ? TR_FORMAT_CSV
                 : strcmp(argv[1], "ratings") == 0 ? TR_FORMAT_RATINGS
                                                   : TR_FORMAT_DOCWORD;
    TR_TRY(tr_files_open(argv + 2, 1, &files));
    TR_TRY(tr_look_shapes(&files, format, TR_HEADER_AUTO, &shape));
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
