/* trireme convert. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "data/convert.h"
#include "job/job.h"
#include "trireme/model.h"

/* What training knows of reading tables; of no model. */
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

static const char usage[] =
    "usage: trireme convert DATA… OUT.h5 [data.KEY=value …]: see trireme help convert";

/* The settings that say how files are read. */
static int check_setting(const char *word)
{
    static const char *const keys[] = {"data.format",
                                       "data.header",
                                       "data.label",
                                       "data.index_base",
                                       "data.on_error",
                                       "data.features",
                                       "data.folders",
                                       "data.columns",
                                       "data.missing",
                                       "data.max_record",
                                       NULL};
    char key[64];
    size_t n = strcspn(word, "=");
    snprintf(key, sizeof key, "%.*s", (int)tr_min_size(n, sizeof key - 1), word);
    for (size_t i = 0; keys[i]; i++)
        if (strcmp(key, keys[i]) == 0) return TR_OK;
    const char *meant = tr_suggest(key, keys);
    return tr_fail(TR_ERR_USAGE, "convert: unexpected %s: %s%s%s", key, meant ? "did you mean " : "see ",
                   meant ? meant : "trireme help convert", meant ? "?" : "");
}

static int show_progress(double part)
{
    tr_show_part("converting", part);
    return TR_OK;
}

static void say_result(const struct tr_conversion *c)
{
    tr_live_end();
    tr_printf(stdout, "%s: %llu rows, %llu columns, %llu %s, %s\n", c->out, (unsigned long long)c->rows,
              (unsigned long long)c->columns,
              (unsigned long long)(c->sparse ? c->nonzeros : c->rows * c->columns),
              c->sparse ? "non-zeros" : "numbers", tr_bytes((double)c->bytes).text);
    if (c->skipped > 0) printf("%llu malformed records left out\n", (unsigned long long)c->skipped);
}

static int run(char **files, size_t n, char **settings, int n_settings)
{
    tr_job *job;
    if (n < 2) return tr_fail(TR_ERR_USAGE, "%s", usage);
    for (int i = 0; i < n_settings; i++) TR_TRY(check_setting(settings[i]));
    TR_TRY(tr_job_parse_as(TR_JOB_STRICT, &table_class, "{}", 2, TR_NO_JOB_FILE, n_settings, settings, &job));
    struct tr_conversion c = {.job = job, .files = files, .n = n - 1, .out = files[n - 1]};
    c.progress = show_progress;
    int status = tr_convert(&c);
    if (status == TR_OK) say_result(&c);
    tr_job_free(job);
    return status;
}

int tr_convert_command(int argc, char **argv)
{
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return tr_help_command(1, (char *[]){"convert", NULL});
    char **files = calloc((size_t)argc + 1, sizeof *files),
         **settings = calloc((size_t)argc + 1, sizeof *settings);
    size_t n = 0;
    int n_settings = 0, status = files && settings ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory");
    for (int i = 0; i < argc && status == TR_OK; i++) {
        if (tr_job_is_setting(argv[i])) settings[n_settings++] = argv[i];
        else if (argv[i][0] == '-' && argv[i][1])
            status = tr_fail(TR_ERR_USAGE, "unknown option %s: %s", argv[i], usage);
        else files[n++] = argv[i];
    }
    if (status == TR_OK) status = run(files, n, settings, n_settings);
    free(files);
    free(settings);
    return tr_complain(status);
}
