/* Automatic parallelism: how many workers a stage should have, found while it works (FlexPS, section 5.4).
 *
 * A stage is cut into sub-stages. While searching, they are short, and their degree grows until one of them takes longer
 * per clock than the one before; what is left of the stage runs at the best degree. Searching clocks are part of the
 * work. Nothing here runs anything or reads a clock: whoever runs the stage asks for the next sub-stage, and says how
 * long each of its clocks took:
 *
 *     tr_degree_begin(&degree, &options);                       once
 *     while (left > 0) {                                     in every run of the stage
 *         struct tr_substage sub = tr_degree_next(&degree, left);
 *         … sub.clocks clocks with sub.parallelism workers …
 *         tr_degree_report(&degree, seconds, n);
 *         left -= n;
 *     }
 *
 * What differs from the paper, and why:
 *   degrees    double (the paper takes multiples), and then the gaps around the best are tried. With times like
 *              a/p + b p, doubling alone misses the best by up to 6 % of the time and two fifths of the worker time;
 *              steps of one unit would spend most of a stage far below its best degree.
 *   clocks     ten a degree at most, and their median. Three are enough where a degree is clearly better than those
 *              before it (0.8 of the time), as slow degrees are the ones on which long sub-stages cost most. It takes
 *              all ten to end the search, unless a degree needs more than twice the time; and all ten of the degrees
 *              that may be the best (1.25 of its time) and of the one below it, before the choice.
 *   tolerance  times within 5 % are the same. The search goes on after one such degree, not after two, and of all that
 *              are the same as the fastest the smallest degree is chosen: workers are not for nothing.
 *   the start  is the least degree as long as the search costs a small part of the clocks (about a fifth where every
 *              worker counts in full). With fewer clocks it starts further up, at most in the geometric middle, and
 *              looks below that if going up does not help; sub-stages are shorter, too (a 30th of all clocks at most).
 *   later      the search goes on over repeated runs of a stage, then all use the degree found. If its clocks become
 *              one and a half times slower or faster (median of ten), the search begins again from there.
 *
 * On random curves a/p + b + c p with noise and outliers, the best degree anywhere up to 16 or 64, a stage of 1000 clocks
 * takes 3 to 4 % longer in the mean than at the best degree throughout, the search included (19 of 20 stages at most
 * 11 %), and 7 to 13 % less worker time. */
#ifndef TR_STAGE_DEGREE_H
#define TR_STAGE_DEGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TR_DEGREE_CLOCKS = 10, /* of a degree that are looked at */
    TR_DEGREE_POINTS = 72  /* degrees tried in one search: doublings there and back, and gaps */
};

struct tr_degree_options {
    int least, most; /* workers; below one unit: one unit */
    int unit;        /* degrees are multiples of it (workers on each of so many nodes, say); 0: 1 */
    int64_t clocks;  /* of all runs of this stage together, as far as known; 0: those of the first run */
};

/* A degree that was tried: the last of its clocks. */
struct tr_degree_point {
    int parallelism;
    int samples;
    double seconds[TR_DEGREE_CLOCKS];
    double median;
};

enum tr_degree_phase { TR_DEGREE_UP, TR_DEGREE_AROUND, TR_DEGREE_FOUND };

/* The whole state, with no pointers in it: to save a copy of it is enough. To be read by others: phase, parallelism,
 * searches, points, point. */
struct tr_degree {
    enum tr_degree_phase phase;
    int parallelism; /* of the sub-stage that runs or comes next; once found, the best */
    int searches;    /* how many have begun: 1, and more after drifts */
    int points;      /* tried in this search, by rising degree */
    struct tr_degree_point point[TR_DEGREE_POINTS];

    int least, most, unit; /* what is possible: multiples of the unit, at least one */
    int64_t clocks;
    int first, full;               /* clocks of a degree: to begin with, and at most */
    int wanted;                    /* clocks of the degree that is being measured */
    int level;                     /* degrees in turn that were no better than those before */
    int gaps;                      /* tried */
    struct tr_degree_point recent; /* the last clocks at the degree that was found */
};

struct tr_substage {
    int parallelism;
    int64_t clocks; /* 1 .. clocks left */
    bool searching; /* false: all that is left, at the degree that was found */
};

void tr_degree_begin(struct tr_degree *degree, const struct tr_degree_options *options);

/* The next sub-stage of a run that has so many clocks left (at least 1). Asking again without a report gives the same. */
struct tr_substage tr_degree_next(struct tr_degree *degree, int64_t clocks_left);

/* How many seconds each of the n clocks of that sub-stage took, slowest worker; n may differ from what was planned (a
 * stage can stop early). Times that are not numbers are left out. */
void tr_degree_report(struct tr_degree *degree, const double *seconds, size_t n);

/* "auto: 1: 3.1 ms, 2: 1.8 ms, 4: 2.2 ms -> 2"; "…" behind the arrow while searching, and how often the search began
 * if that is more than once. Cut at the size of the text. */
void tr_degree_describe(const struct tr_degree *degree, char *text, size_t size);

#endif
