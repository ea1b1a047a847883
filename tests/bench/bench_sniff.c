/* bench_sniff FILE...: prints the dialect of each file: its path, delimiter, quote, escape (in hexadecimal digits; 00: none), lines
 * above the header, lines of names, and milliseconds, separated by tabs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dialect.h"
#include "data/input.h"
#include "trireme/base.h"

int main(int n, char **paths)
{
    for (int i = 1; i < n; i++) {
        char said[TR_DIALECT_SAID];
        struct tr_files files;
        double start = tr_now();
        int status = tr_files_open(&paths[i], 1, &files);
        if (status == TR_OK) status = tr_dialect_settings(NULL, &files);
        if (status == TR_OK) status = tr_dialects_find(&files, TR_FORMAT_CSV, said);
        if (status != TR_OK) {
            printf("%s\t%s\n", paths[i], tr_error_text());
            continue;
        }
        const struct tr_dialect *d = &files.file->dialect;
        printf("%s\t%02x\t%02x\t%02x\t%u\t%u\t%.2f\n", paths[i], (unsigned char)d->delimiter,
               (unsigned char)d->quote, (unsigned char)d->escape, d->skip_lines, d->header,
               1e3 * (tr_now() - start));
        tr_files_close(&files);
    }
    return 0;
}
