#define _GNU_SOURCE
#include "cli/cli.h"

#include <blis.h>
#include <errno.h>
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "job/schema.h"
#include "ranks/ranks.h"
#include "trireme/cpu.h"

#define TR_COMMAND(name) &tr_##name##_command,
const struct tr_cli_command *const tr_commands[] = {TR_COMMANDS NULL};
enum { COMMANDS = sizeof tr_commands / sizeof *tr_commands - 1 };

const struct tr_cli_command *tr_command_of(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(tr_commands[i]->syntax.command, name) == 0) return tr_commands[i];
    return NULL;
}

int tr_complain(int status)
{
    tr_live_end();
    if (status != TR_OK) tr_printf(stderr, "trireme: error: %s\n", tr_error_text());
    return status;
}

int tr_flush_output(int status)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    return failed && status == TR_OK ? tr_file_failed("standard output", "written", errno) : status;
}

/* Prints the version of Trireme, of libraries and of the compiler. */
static int main_version(void)
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

static int main_run(const struct tr_cli_command *command, int argc, char **argv)
{
    void *options = NULL;
    struct tr_arguments arguments = {.words = 0};
    if (tr_is_an_echo() && !command->on_ranks) return TR_OK;
    int status = tr_new(&options, 1, command->options_size + 1, "options");
    if (status == TR_OK && command->defaults) memcpy(options, command->defaults, command->options_size);
    if (status == TR_OK) status = tr_arguments_read(&command->syntax, argc, argv, options, &arguments);
    if (status != TR_OK) { /* all ranks have found this error: only one prints it */
        status = tr_is_an_echo() ? TR_OK : tr_complain(status);
    } else {
        status = command->run(&arguments, options);
        if (!command->on_ranks) tr_complain(status);
    }
    tr_arguments_free(&arguments);
    free(options);
    return status;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "help", *names[COMMANDS];
    int words = tr_max_int(argc - 2, 0);
    bool asks_help = false;
    tr_stderr_by_lines();
    tr_blis_environment();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) return tr_is_an_echo() ? TR_OK : main_version();
    if (strcmp(name, "help") == 0) return tr_is_an_echo() ? TR_OK : tr_help(words, argv + 2);
    const struct tr_cli_command *command = tr_command_of(name);
    if (!command && tr_is_an_echo()) return TR_OK;
    if (!command) {
        for (size_t i = 0; i < COMMANDS; i++) names[i] = tr_commands[i]->syntax.command;
        const char *meant = tr_job_suggest(name, names, COMMANDS);
        return tr_complain(tr_fail(TR_ERR_USAGE, "unknown command %s: %s%s%s", tr_shown(name).text,
                                   meant ? "did you mean " : "see trireme help", meant ? meant : "",
                                   meant ? "?" : ""));
    }
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) /* words after -- are for another program */
        asks_help = asks_help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (asks_help) return tr_is_an_echo() ? TR_OK : tr_help(1, argv + 1);
    return main_run(command, words, argv + 2);
}
