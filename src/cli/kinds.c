#include "cli/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "store/h5.h"
#include "model/linear/file.h"

static const struct tr_command_kind *const kinds[] = {&tr_linear_commands, &tr_kmeans_commands,
                                                      &tr_mf_commands, &tr_lda_commands};

static int kind_of_h5(const char *path, const struct tr_command_kind **kind)
{
    struct tr_h5_reader *reader;
    TR_TRY(tr_h5_open(path, NULL, 0, &reader));
    *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->format, tr_h5_format(reader)) == 0) *kind = kinds[i];
    int status = *kind ? TR_OK
                       : tr_fail(TR_ERR_DATA,
                                 "%s: the model has the format %.40s, which this version of Trireme does "
                                 "not know",
                                 tr_h5_path(reader), tr_h5_format(reader));
    tr_h5_close(&reader);
    return status;
}

int tr_command_kind_of(const char *path, const struct tr_command_kind **kind)
{
    enum tr_file_kind file;
    TR_TRY(tr_file_kind(path, &file));
    if (file == TR_FILE_FOLDER) {
        char *inside;
        TR_TRY(tr_format(&inside, "%s/model.h5", path));
        bool there = access(inside, F_OK) == 0;
        free(inside);
        if (there) return kind_of_h5(path, kind);
    } else if (file == TR_FILE_MODEL_H5) {
        return kind_of_h5(path, kind);
    }
    *kind =
        &tr_linear_commands; /* the only kind with a text format, and the one that says what was expected */
    return TR_OK;
}

void tr_show(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%-13s ", name);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}
