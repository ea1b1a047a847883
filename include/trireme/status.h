/* Status codes and the way errors travel.
 *
 * Every function of Trireme that can fail returns an int: TR_OK or one of the codes below. The codes are
 * those of sysexits.h, so that the status of a job is also the exit code of its process. Whoever finds an
 * error describes it once with tr_fail() (what, where, what was expected); everybody above passes the code
 * on with TR_TRY(). The description stays with the thread that failed, as errno does, until tr_error_text()
 * is asked for it. Outputs are set only on success.
 */
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum tr_status {
    TR_OK = 0,
    TR_ERR_USAGE = 64,     /* command line: unknown command, missing argument */
    TR_ERR_DATA = 65,      /* a record, model or checkpoint is malformed */
    TR_ERR_NO_INPUT = 66,  /* an input file is missing, empty or unreadable */
    TR_ERR_PEER = 69,      /* another rank failed or does not answer */
    TR_ERR_INTERNAL = 70,  /* a bug of ours, or a call in the wrong order */
    TR_ERR_SYSTEM = 71,    /* out of memory, MPI or operating system */
    TR_ERR_NO_OUTPUT = 73, /* an output file or folder cannot be created */
    TR_ERR_IO = 74,        /* reading or writing failed half way (disk full) */
    TR_ERR_STOPPED = 75,   /* stopped early on request: start again to go on */
    TR_ERR_DIVERGED = 76,  /* the objective is not finite any more */
    TR_ERR_CONFIG = 78     /* job file: unknown key, wrong type, impossible value */
};

/* Describes an error and returns its code: return tr_fail(TR_ERR_DATA, "%s:%zu: …", file, line).
 * The text is one line without a final stop; it is cut at 1 KiB. */
int tr_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* The text of this thread's last tr_fail(); "" before the first. Owned by the library. */
const char *tr_error_text(void);

/* Passes an error on: TR_TRY(f(x)); returns from the calling function with f's status unless it is TR_OK. */
#define TR_TRY(call)                                                                                         \
    do {                                                                                                     \
        int tr_try_status_ = (call);                                                                         \
        if (tr_try_status_ != TR_OK) return tr_try_status_;                                                  \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
