/* trireme convert: writes data files of any format as one HDF5 file, or tables of text as one csv file. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "data/convert.h"
#include "job/job.h"
#include "trireme/model.h"

/* A model class for the job of this command, which uses only keys that determine how data are read. */
static const tr_method no_method[] = {{.name = "none", .help = "none"}, {0}};
static const tr_rule rules[] = {{.key = "data.label", .value = "auto"}, {.key = NULL}};
static const tr_model_class table_class = {.abi = TR_MODEL_ABI,
                                           .name = "table",
                                           .types = TR_WORDS("table"),
                                           .help = "a table",
                                           .noun = "a table",
                                           .format = "table",
                                           .data_formats = TR_WORDS("libsvm", "csv", "hdf5"),
                                           .methods = no_method,
                                           .rules = rules};

static int show_progress(double part)
{
    tr_show_part("converting", part);
    return TR_OK;
}

static int convert_command(struct tr_arguments *arguments, void *options)
{
    tr_job *job;
    size_t n = arguments->words - 1;
    (void)options;
    TR_TRY(tr_job_parse_as(TR_JOB_STRICT, &table_class, "{}", 2, TR_NO_JOB_FILE, arguments->settings,
                           arguments->setting, &job));
    struct tr_conversion c = {
        .job = job, .files = arguments->word, .n = n, .out = arguments->word[n], .progress = show_progress};
    int status = tr_convert(&c);
    if (status == TR_OK) {
        tr_live_end();
        tr_printf(stdout, "%s: %llu rows, %llu columns, %llu %s, %s\n", c.out, (unsigned long long)c.rows,
                  (unsigned long long)c.columns,
                  (unsigned long long)(c.sparse ? c.nonzeros : c.rows * c.columns),
                  c.sparse ? "non-zeros"
                  : c.text ? "fields"
                           : "numbers",
                  tr_bytes((double)c.bytes).text);
        if (c.skipped > 0) printf("%llu malformed records left out\n", (unsigned long long)c.skipped);
    }
    tr_job_free(job);
    return status;
}

const struct tr_cli_command tr_convert_command = {
    .syntax = {.command = "convert",
               .expected = "DATA... OUT.h5",
               .least = 2,
               .keys = TR_WORDS("data.format", "data.header", "data.label", "data.index_base",
                                "data.on_error", "data.features", "data.max_record", "data.folders",
                                "data.missing", "data.columns", "data.delimiter", "data.quote", "data.escape",
                                "data.newlines", "data.comment", "data.skip_lines", "data.decimal",
                                "data.thousands", "data.encoding")},
    .brief = "write data as HDF5, which all ranks read in parallel, or as csv",
    .usage = "trireme convert DATA... OUT.h5|OUT.csv [data.KEY=value ...]",
    .about =
        "Writes the rows of all files DATA (globs are allowed; found as the files of jobs are) to one HDF5 "
        "file. A job that has it as data.train learns the same model from it, but reads it in less than half "
        "the time: nothing is unpacked or parsed, each rank reads its own rows, and all bytes are checked.\n"
        "LIBSVM, csv and other HDF5 are converted. Mostly empty rows become lists of non-zeros, group X in "
        "the form of AnnData and scipy; others an array X. Labels become y. All columns of csv are in X, "
        "with their names, and the words of columns in the group columns: jobs may use the same keys as for "
        "csv. h5py and h5dump read all of it.\n"
        "The keys are those of jobs: data.format, data.label, data.index_base, data.on_error, data.features, "
        "data.max_record, data.folders, data.missing, data.columns (the columns id and ignore are left out), "
        "and those "
        "of text: data.header, data.delimiter, data.quote, data.escape, data.newlines, data.comment, "
        "data.skip_lines, "
        "data.decimal, data.thousands, data.encoding. data.label is auto by default; none: all columns are "
        "data.\n"
        "If the name ends with .csv, tables of text are written as csv in the usual form: a line of names, "
        "commas, quotes "
        "where they are needed, UTF-8. It shows how trireme reads the files: text is unchanged, and the "
        "columns ignore "
        "are left out.\n"
        "Files are read twice, in pieces: memory grows only with the number of different words. OUT.h5 "
        "appears when it is complete.",
    .run = convert_command,
};
