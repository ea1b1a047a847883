#define _GNU_SOURCE
#include "cli/cli.h"

#include <blis.h>
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "job/text.h"
#include "ranks/ranks.h"
#include "trireme/cpu.h"

struct command {
    const char *name;
    tr_command_fn *run;
};

static const struct command commands[] = {
    {"train", tr_train_command},       {"sweep", tr_sweep_command},       {"run", tr_run_command},
    {"predict", tr_predict_command},   {"evaluate", tr_evaluate_command}, {"inspect", tr_inspect_command},
    {"generate", tr_generate_command}, {"convert", tr_convert_command},   {"count", tr_count_command},
    {"watch", tr_watch_command},       {"plot", tr_plot_command},         {"help", tr_help_command}};

int tr_complain(int status)
{
    tr_live_end();
    if (status != TR_OK) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    return status;
}

static int unknown_command(const char *name)
{
    enum { COMMANDS = sizeof commands / sizeof *commands };
    const char *names[COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *meant = tr_suggest(name, names);
    return tr_complain(tr_fail(TR_ERR_USAGE, "unknown command %s: %s%s%s", tr_shown(name).text,
                               meant ? "did you mean " : "see trireme help", meant ? meant : "",
                               meant ? "?" : ""));
}

/* With what it was built from, and what it runs with here. */
static int show_version(void)
{
    unsigned major, minor, release;
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    H5get_libversion(&major, &minor, &release);
    MPI_Get_library_version(mpi, &length);
    mpi[strcspn(mpi, ",\n")] = '\0';
    tr_printf(stdout, "trireme %s\n", TR_VERSION);
    tr_printf(stdout, "MPI:      %s\n", mpi);
    printf("HDF5:     %u.%u.%u\n", major, minor, release);
    tr_printf(stdout, "BLIS:     %s\n", bli_info_get_version_str());
    tr_printf(stdout, "kernels:  %s of plain, avx2, avx512\n", tr_cpu_name(tr_cpu()));
    tr_printf(stdout, "compiler: gcc %s%s\n", __VERSION__,
#ifdef TR_FAULTS
              ", with fault points"
#else
              ""
#endif
    );
    return TR_OK;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "help";
    tr_stderr_by_lines();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) return tr_is_an_echo() ? TR_OK : show_version();
    if (strcmp(name, "help") == 0 && tr_is_an_echo()) return TR_OK;
    tr_blis_environment();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].run(argc > 2 ? argc - 2 : 0, argv + 2);
    return tr_is_an_echo() ? TR_OK : unknown_command(name);
}
