/* Which rows of data.train are held out as test data (data.test: 10%, or fold 2/5).
 *
 * Each row has a 64-bit key, and is held out if from <= key < to. The key of a row is
 *   TR_SPLIT_PLACE   a hash of the seed and the place of its line in the files; docword: of the number of its document
 *   TR_SPLIT_PAIR    of ratings: a hash of the seed, the user and the item. So all ratings of a pair are on one side
 *   TR_SPLIT_GROUP   a hash of the seed and its group: the value of the column data.group, or qid in LIBSVM files
 *   TR_SPLIT_TIME    its time, the value of the column data.time
 *   TR_SPLIT_LABEL   that of TR_SPLIT_PLACE, but each label has its own limits from and to
 * So the held-out rows are the same for any number of ranks, and all rows of a group are on one side. Hashes of places and of
 * pairs are uniform: the share determines from and to. For groups and times, all workers first list the marks of the lines in their share of the files,
 * without parsing other fields. A mark is what the line contributes to the key: a hash of the group, or the time as an integer of
 * the same order. tr_split_open() then finds from and to among the keys of all ranks by bisection. In a split by time only the rows
 * before `from` are training data.
 *
 * If labels are classes and some label would have few rows to test with, the split is by label: the share of each label is the same
 * in the training data and in the test data. Then all ranks receive the labels and keys of all rows, of which there are few. */
#ifndef TR_DATA_SPLIT_H
#define TR_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum tr_split_by {
    TR_SPLIT_NONE /* no row is held out */,
    TR_SPLIT_PLACE,
    TR_SPLIT_PAIR,
    TR_SPLIT_GROUP,
    TR_SPLIT_TIME,
    TR_SPLIT_LABEL
};

/* Rows with the label of this mark are held out if from <= key < to. */
struct tr_split_label {
    uint64_t mark, from, to;
};

struct tr_split {
    enum tr_split_by by;
    bool settled; /* from and to will not change */
    uint64_t seed, from, to;
    size_t column;                /* csv: index of the column with the groups, times or labels */
    struct tr_split_label *label; /* by label: ascending by mark. Other rows are held out by from and to */
    size_t labels;
};

/* Limits of a split by label: maximum of rows and of labels; some label must have fewer than FEW_ROWS rows to test with. */
enum { TR_SPLIT_MOST_ROWS = 100000, TR_SPLIT_MOST_LABELS = 1000, TR_SPLIT_FEW_ROWS = 50 };

/* The marks of lines, in the order of reading. By label: pairs of a mark and a key. */
struct tr_marks {
    uint64_t *mark;
    size_t n, capacity;
};

/* Returns the split by place with a share of the rows, between two fractions. TR_SPLIT_NONE if `to` is 0. */
struct tr_split tr_split_of_share(double from, double to, uint64_t seed);

static inline uint64_t tr_split_key(const struct tr_split *p, uint64_t mark, uint64_t file, uint64_t place)
{
    return p->by == TR_SPLIT_TIME    ? mark
           : p->by == TR_SPLIT_GROUP ? tr_mix(tr_mix(p->seed) ^ mark)
           : p->by == TR_SPLIT_PAIR  ? tr_mix(tr_mix(p->seed) ^ mark) >> 11
                                     : tr_mix(tr_mix(tr_mix(p->seed) ^ file) ^ place) >> 11;
}

/* Returns whether a row is not in the test data (test) or not in the training data. mark: 0 for a split by place. */
static inline bool tr_split_leaves_out(const struct tr_split *p, bool test, uint64_t mark, uint64_t file,
                                       uint64_t place)
{
    uint64_t key = tr_split_key(p, mark, file, place), from = p->from, to = p->to;
    for (size_t low = 0, high = p->labels; low < high;) {
        const struct tr_split_label *l = &p->label[(low + high) / 2];
        if (l->mark == mark) from = l->from, to = l->to;
        if (l->mark <= mark) low = (low + high) / 2 + 1;
        else high = (low + high) / 2;
    }
    bool held_out = key >= from && key < to;
    return test ? !held_out : held_out || (p->by == TR_SPLIT_TIME && key >= p->to);
}

/* Reads a time: a number, or a date such as 2024-01-31, possibly with a time of day (2024-01-31T12:30:00.5+01:00). Sets *mark to an
 * integer of the same order, below UINT64_MAX, which is odd for dates. Returns NULL, or a text that describes why the field is no time.
 * n = 0: it is missing. */
const char *tr_split_read_time(const char *text, size_t n, uint64_t *mark);

/* Returns the mark of a pair, from the marks of its ids. The mark of an id is equal whether its list has numbers or texts. */
uint64_t tr_split_id_mark(const char *text, size_t n);
static inline uint64_t tr_split_pair_mark(uint64_t user, uint64_t item)
{
    return tr_mix(tr_mix(user) ^ item);
}

/* Reads a date as tr_split_read_time() does, as seconds since 1970 UTC. */
bool tr_split_read_date(const char *text, size_t n, double *seconds);

/* Return the mark of a label, which is odd for integers and words. A text that is a number has the mark of the number. */
uint64_t tr_split_number_mark(float label);
uint64_t tr_split_text_mark(const char *text, size_t n);

struct tr_data;

/* Sets data->state->split for groups, times and labels, and prints the number of held-out rows. like: the training data of test data. The
 * heads and the schema are known. All ranks; they return the same status. TR_ERR_CONFIG: too few groups or rows. */
int tr_split_open(struct tr_data *data, const struct tr_data *like);

#endif
