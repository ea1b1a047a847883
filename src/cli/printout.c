#define _GNU_SOURCE
#include "cli/printout.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static int failed(const struct tr_printout *o, int status)
{
    return tr_fail(status, "%s: cannot be written: %s", o->path ? o->path : "standard output",
                   strerror(errno));
}

int tr_printout_failed(const struct tr_printout *o)
{
    return failed(o, TR_ERR_IO);
}

int tr_printout_open(const char *path, struct tr_printout *o)
{
    struct stat status;
    *o = (struct tr_printout){.file = stdout, .path = path};
    if (!path) return TR_OK;
    bool in_place = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
    if (!in_place) TR_TRY(tr_format(&o->part, "%s.part", path));
    o->file = fopen(o->part ? o->part : path, "we");
    if (o->file) return TR_OK;
    int failure = failed(o, TR_ERR_NO_OUTPUT);
    free(o->part);
    o->part = NULL;
    return failure;
}

static int complete(struct tr_printout *o)
{
    bool ok = fflush(o->file) == 0 && !ferror(o->file) && (!o->part || fsync(fileno(o->file)) == 0);
    int status = ok ? TR_OK : failed(o, TR_ERR_IO);
    if (o->file != stdout && fclose(o->file) != 0 && status == TR_OK) status = failed(o, TR_ERR_IO);
    o->file = NULL;
    if (status == TR_OK && o->part && rename(o->part, o->path) < 0) status = failed(o, TR_ERR_IO);
    return status;
}

int tr_printout_close(struct tr_printout *o, int status)
{
    if (status == TR_OK) status = complete(o);
    if (o->file && o->file != stdout) fclose(o->file);
    if (status != TR_OK && o->part) unlink(o->part);
    free(o->part);
    *o = (struct tr_printout){0};
    return status;
}

void tr_note_unknown(const char *of, uint64_t values)
{
    if (values == 0) return;
    fprintf(stderr, "trireme: note: %llu values belong to %s that the model does not know and were ignored\n",
            (unsigned long long)values, of);
}
