/* Server functions: what reaches them, in which order, what becomes of it, and what servers answer. */
#include <math.h>

/* ---- a user's function, of public headers only: it keeps a book on what it is handed ---- */

#include <trireme/trireme.h>

enum { PUSHERS = 16, LAST = 64 };

/* What one server has seen; where it lies is the function's argument. */
struct book {
    const tr_share *share;
    int opened, closed, pushers;
    int64_t updates, next[PUSHERS];        /* next: the clock that each pusher's next update is of */
    int64_t units[PUSHERS];                /* of all its updates */
    int64_t expired;                       /* what the last call of expire() said */
    int64_t fails_at;                      /* fails at this update; 0: never */
    double arrived[LAST];                  /* when the first update of a clock came */
    bool in_order, lockstep, merged;       /* demands on the order */
    double (*expect)(const struct book *, int pusher, int64_t clock, tr_key key);
    const void *who;                       /* for expect() */
    char wrong[256];                       /* the first thing that was */
};

static struct book *book_of(const tr_share *share)
{
    struct book *book;
    memcpy(&book, share->argument, sizeof book);
    return book;
}
