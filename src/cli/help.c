#include "cli/cli.h"

int tr_help_command(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return tr_complain(tr_fail(TR_ERR_INTERNAL, "not yet"));
}
