/* Tables and views: where parameters live, and how a worker reads and changes them.
 *
 * A table is a matrix of one element type, cut into blocks that a partitioner spreads over the servers. A
 * worker never touches a table itself: it opens a view of the keys that its data needs, a compact local copy
 * in which key number i of the view is element (or row) i. The key list is sent once and stays cached at the
 * servers (PS: key caching; Angel: pruned pulling); values travel by the cheapest route.
 */
#ifndef TRIREME_TABLE_H
#define TRIREME_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tr_dtype { TR_F32, TR_F64, TR_I32, TR_I64 };

typedef uint64_t tr_key; /* index of a key in its table */

typedef struct tr_table tr_table;

/* Makes a table of zeros (tr_table_create_with(): or of other numbers). All ranks, in the same order, outside tr_run().
 *   rows, columns  a table of one row has a key per column (a vector of `columns` keys, each one element);
 *                  a table of several rows has a key per row, each `columns` elements wide
 * The partitioner is table.partition of the job; each server holds its share once, in memory that ranks of
 * its node read directly and others through an RMA window. Owned by the context.
 *
 * With hash storage (table.storage: hash) a server keeps a map of just the keys that updates have changed, of up to
 * 2^63: memory goes with these, and grows while the job runs. A key that is not in the map is zeros; neither reading
 * nor adding zeros puts it there. Each key costs 16 to 19 bytes more, rows are not cut into pieces, and such a table
 * is read by asking its servers, on the same node too, and gets updates as messages. TR_ERR_CONFIG where table.route or
 * table.push want it otherwise. */
int tr_table_create(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                    tr_table **table);

/* A partitioner of one's own: the server, 0 .. servers-1, of a block of keys. Block b of `blocks` holds the keys
 * from b × tr_table_options.block on. Called once a block when the table is made, on every rank, and must say the
 * same on all of them. */
typedef uint32_t tr_place_fn(void *who, uint64_t block, uint64_t blocks, uint32_t servers);

/* What the elements of a table are before its first update. Random numbers are a function of seed, key and column alone:
 * they are the same on every layout, and for every number of servers. */
enum tr_initial {
    TR_INITIAL_ZERO,
    TR_INITIAL_CONSTANT, /* scale */
    TR_INITIAL_UNIFORM,  /* from -scale to scale */
    TR_INITIAL_NORMAL    /* mean 0, standard deviation scale */
};

/* That element; column is 0 in a table of one row. */
double tr_initial_element(enum tr_initial initial, double scale, uint64_t seed, tr_key key, uint64_t column);

/* What a table may have of its own; zeros leave it to the job. */
typedef struct tr_table_options {
    uint32_t servers;   /* that hold the table; 0: table.servers, and if that is 0 too, all. A table on some
                           begins behind the last one that was on some, so that small tables spread */
    uint64_t block;     /* keys of one block; 0: table.block, and if that is 0 too, chosen */
    tr_place_fn *place; /* NULL: table.partition. With it, wide rows too lie whole on their server */
    void *who;          /* handed to place() */
    bool hash;          /* hash storage; false: as table.storage says, but dense with a place function */
    bool sparse; /* rows are lists of (column, value) pairs: memory goes with what is not zero. Such a table
                           has no views: see trireme/rows.h. TR_F32 or TR_I32; up to 2^32 columns; not with hash */
    enum tr_initial
        initial;   /* of a dense table; what a checkpoint has of the table takes its place. Integers are
                           rounded to the nearest */
    double scale;  /* … by which initial is multiplied */
    uint64_t seed; /* … and its seed */
    const char
        *fallback; /* a table whose values a checkpoint's reader takes where the checkpoint has none of this
                           name, as another layout made it; NULL: that is an error. Must outlive the table */
} tr_table_options;

/* Makes a table as tr_table_create() does, but as the options say (NULL: the same). All ranks with the same
 * options. TR_ERR_CONFIG for more servers than there are; if place() names a server that does not exist (the
 * text says table and block); if ranks put keys in different places; for more than 2^24 blocks: every rank
 * lists them, 12 bytes each; for hash with a place function; for initial values of hash storage or sparse rows. */
int tr_table_create_with(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows,
                         uint64_t columns, const tr_table_options *options, tr_table **table);

/* Gives a table's memory back before the context ends: all ranks, outside tr_run(), its views closed. */
int tr_table_drop(tr_table **table);

/* Makes all elements 0 that lie with this rank: as every server calls it, in a stage's begin or snapshot function, all
 * are. Not with hash storage; nothing where the rank does not serve the table. */
void tr_table_clear(tr_table *table);

/* Moves a table to more or fewer servers; elements that another one holds from now on travel to it, `moved` bytes over
 * all ranks. On a ring (table.partition) these are as few as can be. All ranks, outside tr_run(), its views closed.
 * TR_ERR_CONFIG for more servers than there are, hash storage, sparse rows, tables with a server function or a place
 * function of their own. */
int tr_table_resize(tr_table *table, uint32_t servers, uint64_t *moved);

/* What table.filter kkt has to know: alpha, the factor of |w|₁ beside what one pusher pushes, and how many times the
 * gradient that is (scale). All ranks, before views are open. */
void tr_table_filter_l1(tr_table *table, double alpha, double scale);

/* Updates come only in clocks `first`, first + every, first + 2 every … of the stages to come, 0 <= first < every; at first in all
 * of them. Under BSP, where updates are merged, the merges of the other clocks are left out: views need not be pushed in these,
 * and pushing one is TR_ERR_INTERNAL. All ranks, before tr_run(). */
void tr_table_update_every(tr_table *table, int64_t every, int64_t first);

uint64_t tr_table_keys(const tr_table *table);
size_t tr_table_width(const tr_table *table); /* elements of one key */

/* Σ of the squares of all elements, computed by the servers where they lie. Called by one worker inside a
 * stage; under BSP, between its pull and its push, it is of the clock that it has pulled. */
int tr_table_squares(tr_table *table, double *sum);

/* One worker's compact copy of some keys of a table. */
typedef struct tr_view {
    tr_table *table;
    size_t n;      /* keys */
    size_t width;  /* elements of one key */
    void *value;   /* n × width elements as last pulled; the worker may change them for its own use */
    void *delta;   /* n × width elements, to be added to the table by the next push, zeros at first and after
                      that; NULL in a view that only reads. The first clock may find it at another address
                      than prepare did */
    int64_t clock; /* the clock at which value was read: -1 before the first pull */
    struct tr_view_state *state;
} tr_view;

enum tr_view_use {
    TR_VIEW_READ,   /* pulled only */
    TR_VIEW_UPDATE, /* pulled and pushed by this worker for itself */
    TR_VIEW_GROUP   /* the same keys for all members of the group: the leader pulls and spreads them, what
                         the members push is summed inside the group and leaves it once */
};

/* Opens a view of n keys, which must ascend. Inside a stage's prepare function; a view of the whole group is
 * opened by all its members with the same keys, and used from the first clock on. Keys are copied. Free with
 * tr_view_close(), but not between the clocks of a stage. */
int tr_view_open(tr_table *table, const tr_key *keys, size_t n, enum tr_view_use use, tr_view **view);
void tr_view_close(tr_view **view);

/* Reads the view for the worker's present clock c: waits until the consistency of the job allows it (all
 * updates of clocks < c - s are in what is read, and under BSP none of later ones), then fills value. A view
 * that has this clock already is left alone. Own updates are always seen. */
int tr_view_pull(tr_view *view);

/* Begins to read for the next clock into a second buffer while this one is computed; the next
 * tr_view_pull() hands it over with the worker's own updates added. Under BSP there is nothing to read
 * before everybody is done, and the reading begins as soon as they are. Does nothing where all values lie in
 * memory of the node, nor where no clock comes next: in an evaluation while all stand still. */
int tr_view_prefetch(tr_view *view);

/* Sends delta off to be added to the table, and zeroes it; under BSP once a clock. The update travels, or is
 * fetched by the servers, while the worker goes on: delta is not to be touched again in this clock. */
int tr_view_push(tr_view *view);

#ifdef __cplusplus
}
#endif
#endif
