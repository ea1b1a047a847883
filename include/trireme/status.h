/* Status codes and error messages.
 *
 * A function that can fail returns an int: TR_OK or one of the codes below. The codes are those of sysexits.h, so
 * that the status of a job is also the exit code of its process. The function that detects an error describes it
 * once with tr_fail(): cause, place, expectation. Its callers propagate the code with TR_TRY(). The text is stored
 * per thread, as errno is, until tr_error_text() reads it. Outputs are set on success only.
 *
 * Example:
 *
 *     static int check_rank(const tr_job *job, uint64_t rank)
 *     {
 *         if (rank > 1024)
 *             return tr_fail(TR_ERR_CONFIG, "%s: model.rank: expected at most 1024, found %llu",
 *                            tr_job_where(job, "model.rank"), (unsigned long long)rank);
 *         return TR_OK;
 *     }
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
    TR_ERR_INTERNAL = 70,  /* a bug in Trireme, or calls in the wrong order */
    TR_ERR_SYSTEM = 71,    /* memory is exhausted, or MPI or the operating system failed */
    TR_ERR_NO_OUTPUT = 73, /* an output file or folder cannot be created */
    TR_ERR_IO = 74,        /* reading or writing failed (disk full) */
    TR_ERR_STOPPED = 75,   /* stopped early on request: the same command resumes */
    TR_ERR_DIVERGED = 76,  /* the objective is no longer finite */
    TR_ERR_NO_PERM = 77,   /* a file that another user could have written is not used */
    TR_ERR_CONFIG = 78     /* job file: unknown key, wrong type, impossible value */
};

/* Records the description of an error and returns its code.
 *
 * @param [in] status  one of the codes above, not TR_OK
 * @param [in] format  as for printf; one line without a final full stop, cut at 1 KiB
 * @return status, so that a function can end with: return tr_fail(...);
 */
int tr_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns the text of this thread's last tr_fail(), or "" if there was none. Owned by the library. */
const char *tr_error_text(void);

/* Propagates an error: TR_TRY(f(x)); returns from the calling function with the status of f unless it is TR_OK. */
#define TR_TRY(call)                                                                                         \
    do {                                                                                                     \
        int tr_try_status_ = (call);                                                                         \
        if (tr_try_status_ != TR_OK) return tr_try_status_;                                                  \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
