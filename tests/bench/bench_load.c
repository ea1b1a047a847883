/* Times reading files of rows by one reader, and nothing else: bench_load FORMAT FILE REPEATS prints for each repeat the rows,
 * the seconds, and those of the processor. FORMAT: libsvm, csv, hdf5; or raw: all arrays of an HDF5 file, each by one call of
 * HDF5, as they are. */
#define H5_USE_110_API /* later versions have other arguments under the same names */
#include <hdf5.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base.h"
#include "data/reader.h"

static double processor(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static herr_t read_array(hid_t where, const char *name, const H5O_info_t *info, void *rows)
{
    if (info->type != H5O_TYPE_DATASET) return 0;
    hid_t set = H5Dopen2(where, name, H5P_DEFAULT), space = H5Dget_space(set), stored = H5Dget_type(set);
    hid_t type = H5Tget_native_type(stored, H5T_DIR_DEFAULT);
    size_t n = (size_t)H5Sget_simple_extent_npoints(space);
    void *values = malloc(n * H5Tget_size(type) + 1);
    herr_t status = values ? H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) : -1;
    *(uint64_t *)rows = n;
    free(values);
    H5Tclose(type);
    H5Tclose(stored);
    H5Sclose(space);
    H5Dclose(set);
    return status;
}

static int read_raw(const char *path, uint64_t *rows)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    bool ok = file >= 0 && H5Ovisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, read_array, rows) >= 0;
    if (file >= 0) H5Fclose(file);
    return ok ? TR_OK : tr_fail(TR_ERR_DATA, "%s: cannot be read", path);
}

static int read_rows(char *path, enum tr_format format, uint64_t *rows)
{
    struct tr_files files;
    struct tr_head *heads;
    struct tr_matrix m;
    struct tr_read_report report;
    TR_TRY(tr_files_open(&path, 1, &files));
    TR_TRY(tr_heads_read(&files, format, TR_HEADER_AUTO, &heads));
    struct tr_reader_options options = {.format = format, .heads = heads, .label = TR_LABEL_LAST};
    TR_TRY(tr_read_matrix(&files, 0, 1, &options, &m, &report));
    *rows = m.rows;
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&m);
    free(heads);
    tr_files_close(&files);
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s libsvm|csv|hdf5|raw FILE REPEATS\n", argv[0]);
        return TR_ERR_USAGE;
    }
    /* Each repeat has fresh pages for its large arrays, as a program that loads once: otherwise the C library would reuse the pages
     * of the previous repeat for readers that allocate one array at a time, but not for those that allocate all. */
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    for (int i = 0; i < atoi(argv[3]); i++) {
        uint64_t rows = 0;
        double begin = tr_now(), used = processor();
        int status = strcmp(argv[1], "raw") == 0 ? read_raw(argv[2], &rows)
                                                 : read_rows(argv[2], tr_format_named(argv[1]), &rows);
        if (status != TR_OK) {
            fprintf(stderr, "bench_load: %s\n", tr_error_text());
            return status;
        }
        printf("%llu %.4f %.4f\n", (unsigned long long)rows, tr_now() - begin, processor() - used);
    }
    return TR_OK;
}
