/* Times the LIBSVM reader alone: bench_parse FILE REPEATS prints rows, non-zeros and MB/s of each repeat. */
#include <stdlib.h>

#include "base/base.h"
#include "data/reader.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FILE REPEATS\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct tr_files files;
    TR_TRY(tr_files_open(argv + 1, 1, &files));
    for (int i = 0; i < atoi(argv[2]); i++) {
        struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM, .lowest_index = 0};
        struct tr_read_report report;
        struct tr_matrix csr = {0};
        double begin = tr_now();
        TR_TRY(tr_read_matrix(&files, 0, 1, &options, &csr, &report));
        double seconds = tr_now() - begin;
        printf("%llu %llu %.1f\n", (unsigned long long)report.rows, (unsigned long long)report.nonzeros,
               (double)report.text_bytes / 1e6 / seconds);
        tr_matrix_free(&csr);
    }
    tr_files_close(&files);
    return TR_OK;
}
