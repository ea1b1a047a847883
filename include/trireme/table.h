/* Tables and views: where parameters are stored, and how workers read and change them.
 *
 * A table is a matrix of one element type. A partitioner distributes its blocks of keys over the servers. A worker does not access
 * a table directly: it opens a view of the keys that its data need, a compact local copy in which element (or row) i belongs to the
 * i-th key of the view. The key list is sent once and cached at the servers (Parameter Server: key caching; Angel: pruned pulling).
 * Values are transferred by shared memory, RMA or messages; the engine chooses.
 *
 * Example: one iteration of a worker, inside a stage's compute function.
 *
 *     TR_TRY(tr_view_pull(w));                              // waits as BSP, SSP or ASP require
 *     const float *value = w->value;
 *     float *delta = w->delta;
 *     for (size_t i = 0; i < w->n; i++) delta[i] = -rate * gradient(i, value);
 *     TR_TRY(tr_view_push(w));                              // delta is added to the table
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

/* ---- creating tables ---- */

/* Creates a table of zeros. All ranks must call it, in the same order, outside tr_run().
 *
 * @param [in]  name           name in checkpoints and messages
 * @param [in]  rows, columns  a table of one row has one key per column (a vector); a table of several rows has one key
 *                             per row, each `columns` elements wide
 * @param [out] table          owned by the context; tr_table_drop() frees it earlier
 * @return TR_OK, TR_ERR_CONFIG if the settings of the job do not fit together, TR_ERR_SYSTEM if memory is exhausted
 *
 * table.partition selects the partitioner. A server stores its shard once, in memory that the ranks of its node read
 * directly and all others through an RMA window.
 *
 * With hash storage (table.storage: hash) a server stores only the keys that updates have changed, out of up to 2^63.
 * Memory grows with the number of these keys, 16 to 19 bytes each in addition to the values. A key that is not stored
 * reads as zeros; reading it or adding zeros does not store it. Such tables are read by requests and updated by
 * messages, also within a node; TR_ERR_CONFIG if table.route or table.push demand otherwise.
 */
int tr_table_create(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                    tr_table **table);

/* A user-defined partitioner. It is called once per block on every rank when the table is created, and must return the
 * same values on all ranks.
 *
 * @param [in] who      the pointer from tr_table_options
 * @param [in] block    0 .. blocks - 1; block b holds the keys from b × tr_table_options.block on
 * @return the server of the block, 0 .. servers - 1
 */
typedef uint32_t tr_place_fn(void *who, uint64_t block, uint64_t blocks, uint32_t servers);

/* Values of the elements before the first update. Random values depend on seed, key and column only: they are the same
 * for every layout and number of servers. */
enum tr_initial {
    TR_INITIAL_ZERO,
    TR_INITIAL_CONSTANT, /* each element is `scale` */
    TR_INITIAL_UNIFORM,  /* uniform in [-scale, scale] */
    TR_INITIAL_NORMAL    /* mean 0, standard deviation scale */
};

/* Returns the initial value of one element. In a table of one row, column is 0. */
double tr_initial_element(enum tr_initial initial, double scale, uint64_t seed, tr_key key, uint64_t column);

/* Options of a table. If a member is zero, the job determines the option. */
typedef struct tr_table_options {
    /* Number of servers; 0: table.servers; if that is 0, too, all servers. Tables with fewer servers are placed on different
     * servers in turn, so that small tables are distributed. */
    uint32_t servers;
    uint64_t block;     /* keys per block; 0: table.block; if that is 0, too, chosen automatically */
    tr_place_fn *place; /* partitioner; NULL: table.partition. With it, wide rows are not split */
    void *who;          /* argument of place() */
    bool hash;          /* hash storage; false: table.storage, or dense storage if place is set */
    /* Rows are lists of (column, value) pairs: memory is proportional to the non-zeros. Such a table has no views: see
     * tr_rows_pull(). TR_F32 or TR_I32, at most 2^32 columns, not together with hash. */
    bool sparse;
    /* Initial values of dense tables; a checkpoint replaces them. Integers are rounded to the nearest. */
    enum tr_initial initial;
    double scale;
    uint64_t seed;
    /* Name of the table to read if a checkpoint has no table of this name because it was written with another layout;
     * NULL: that is an error. Must outlive the table. */
    const char *fallback;
} tr_table_options;

/* Creates a table as tr_table_create() does, with options.
 *
 * @param [in] options  the same on all ranks; NULL: all zeros
 * @return TR_ERR_CONFIG if there are fewer servers than requested; if place() returns an unknown server or differs
 *         between ranks; if there are more than 2^24 blocks (each rank lists them, 12 bytes each); if
 *         hash is combined with place(); if initial values are requested for hash or sparse storage
 */
int tr_table_create_with(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows,
                         uint64_t columns, const tr_table_options *options, tr_table **table);

/* Frees a table before the context ends and sets *table to NULL. All ranks must call it, outside tr_run(), its views closed. */
int tr_table_drop(tr_table **table);

uint64_t tr_table_keys(const tr_table *table);
size_t tr_table_width(const tr_table *table); /* elements per key */

/* ---- changing tables as a whole ---- */

/* Sets all elements that this rank stores to 0; does nothing on ranks that store no elements. To clear the whole table, every
 * server must call it in the begin or snapshot function of a stage. Not for tables with hash storage. */
void tr_table_clear(tr_table *table);

/* Moves a table to another number of servers. All ranks must call it, outside tr_run(), its views closed.
 *
 * @param [in]  servers  new number of servers
 * @param [out] moved    bytes that changed their server, summed over all ranks. A consistent-hash ring
 *                       (table.partition: ring) moves the minimum
 * @return TR_ERR_CONFIG if there are fewer servers; if the table has hash storage, sparse rows, a server function or a
 *         user-defined partitioner
 */
int tr_table_resize(tr_table *table, uint32_t servers, uint64_t *moved);

/* Sets the parameters of table.filter: kkt. All ranks must call it, before views are opened.
 *
 * @param [in] alpha  factor of |w|₁ in the objective, divided by the number of workers or groups that push
 * @param [in] scale  pushed values are scale × gradient
 */
void tr_table_filter_l1(tr_table *table, double alpha, double scale);

/* Declares that updates come only in the clocks first + k × every of the next stages, 0 <= first < every. Under BSP the
 * merges of the other clocks are omitted; pushing a view in these clocks is TR_ERR_INTERNAL. All ranks must call it, before
 * tr_run(). */
void tr_table_update_every(tr_table *table, int64_t every, int64_t first);

/* Computes the sum of the squares of all elements, at the servers. One worker calls it inside a stage. Under BSP, if it does so
 * between its pull and its push, the sum is that of the parameters that it pulled.
 *
 * @param [out] sum  the sum
 */
int tr_table_squares(tr_table *table, double *sum);

/* ---- views ---- */

/* A worker's compact copy of some keys of a table. */
typedef struct tr_view {
    tr_table *table;
    size_t n;     /* number of keys */
    size_t width; /* elements per key */
    void *value;  /* n × width elements as last pulled; the worker may change them for its own use */
    /* n × width elements that the next push adds to the table: zeros before the first write and after each push; NULL in
     * a read-only view. The address may change between prepare() and the first clock. */
    void *delta;
    int64_t clock; /* clock at which value was read; -1 before the first pull */
    struct tr_view_state *state;
} tr_view;

enum tr_view_use {
    TR_VIEW_READ,   /* the worker only pulls the view */
    TR_VIEW_UPDATE, /* the worker pulls and pushes the view */
    /* All members of the group have a view of the same keys. The leader pulls the values and distributes them; pushed values are
     * summed within the group and sent once. */
    TR_VIEW_GROUP
};

/* Opens a view. Called in a stage's prepare function; for TR_VIEW_GROUP by all members with the same keys.
 *
 * @param [in]  keys  n keys in ascending order; copied
 * @param [out] view  usable from the first clock on. Free it with tr_view_close(), not between clocks of a stage
 * @return TR_ERR_INTERNAL if the keys do not ascend or do not exist
 */
int tr_view_open(tr_table *table, const tr_key *keys, size_t n, enum tr_view_use use, tr_view **view);
void tr_view_close(tr_view **view);

/* Reads view->value for the worker's current clock c. It waits until sync.mode permits the read: all updates of clocks below
 * c - staleness are included, and under BSP no later updates. It does nothing if the view was already pulled in this clock. The
 * worker's own updates are always included. */
int tr_view_pull(tr_view *view);

/* Starts to read the values of the next clock into a second buffer while the worker computes. The next tr_view_pull() uses this
 * buffer and adds the worker's own updates. Under BSP the read starts when all workers have ended the current clock. It does
 * nothing if all values are in memory of the node, or if this is the last clock. */
int tr_view_prefetch(tr_view *view);

/* Sends view->delta to be added to the table, and sets it to zeros; under BSP once per clock. The transfer proceeds in
 * the background: delta must not be written again in this clock. */
int tr_view_push(tr_view *view);

/* ================ rows ================ */

/* Pipelined access to rows of a table, for models whose parameters are matrices of many rows (Angel, section
 * «Pipelining pulling», algorithm 2).
 *
 * A worker that uses each row once (to solve for a user, to sample a word) passes a list of rows and a function that processes one
 * row. Requests for later rows are in flight while the function computes. Rows in memory of the node are passed without a copy. If
 * several workers of a node need a row at the same time, it is sent to the node once. Lists may differ between clocks and workers.
 *
 * Tables with sparse rows (tr_table_options.sparse) are read and changed through this interface only.
 *
 * Example:
 *
 *     static int solve_user(void *state, const tr_row *row)
 *     {
 *         struct als *als = state;
 *         return update_factors(als, row->place, row->value);
 *     }
 *     ...
 *     TR_TRY(tr_rows_pull(items, needed, n, solve_user, als));
 */

/* One row. */
typedef struct tr_row {
    tr_key key;
    size_t place; /* index in the list of keys that was passed; unused in a push */
    size_t n;     /* number of values: the table's width, or the number of entries of a sparse row */
    const uint32_t *column; /* sparse: n columns in ascending order; NULL otherwise */
    const void *value;      /* n elements of the table's type; pulled sparse rows contain no zeros */
} tr_row;

/* Processes one row. The row is read-only and valid until the function returns. The function may call tr_rows_push(),
 * and tr_rows_pull() for other tables, but not for the same table.
 *
 * @return TR_OK; any other status ends the pull, which returns it
 */
typedef int tr_row_fn(void *state, const tr_row *row);

/* Pulls rows and calls a function for each, in any order.
 *
 * @param [in] keys  n keys below tr_table_keys(), in any order, repetitions allowed; may be freed after the call.
 *                   Ascending lists, and equal lists on the workers of a node, cost least
 * @param [in] row   called n times on success, in this thread, never recursively
 * @return TR_ERR_INTERNAL for a key that does not exist, for a call inside row() for the same table, and under BSP
 *         after a view was pushed in the same clock
 *
 * Called by a worker inside compute() or evaluate(); workers may call it different numbers of times. At clock c it waits
 * as tr_view_pull() does: every row includes all updates of clocks below c - staleness. Under BSP the rows are exactly
 * those of clock c (tr_rows_push() does not affect them). Under SSP and ASP consecutive rows may be of different times.
 * Own updates are always included; updates of other members of a group are included if they have arrived. Outside tr_run() some
 * ranks may call it while all others wait in tr_agree(): models are saved in this way.
 *
 * Memory in flight is at most (table.ahead + 1) × table.row_bytes per server that stores some of the rows, at least one row each,
 * plus two requests that are being decoded. table.ahead = 0 disables the overlap. Rows above 16 KiB are stored in pieces on several
 * servers and assembled here. The time of the call without row() counts as pull time. A row() that computes for long should call
 * tr_rows_meanwhile().
 */
int tr_rows_pull(tr_table *table, const tr_key *keys, size_t n, tr_row_fn *row, void *state);

/* Declares that this worker pulls the same rows after each update of the table. Under BSP with merged updates, the rows
 * are then sent with each update, once per node, instead of being requested. This applies if table.route is auto, rows
 * have at most 16 KiB, and the subscriptions of a node fit into 256 MiB, which its workers share; otherwise the call has
 * no effect. Called in a stage's prepare function, once per table.
 *
 * @param [in] keys  n keys in ascending order; copied
 * @return TR_ERR_INTERNAL if keys do not ascend or do not exist, or on a second list for a table
 */
int tr_rows_subscribe(tr_table *table, const tr_key *keys, size_t n);

/* Serves other ranks and receives messages that have arrived. Functions that compute for long should call it; a call takes about 1
 * µs if there is nothing to do. */
int tr_rows_meanwhile(tr_table *table);

/* Adds n sparse rows to a sparse table. Elements that become zero are not stored.
 *
 * @param [in] rows  n rows in any order, repetitions allowed, columns ascending; copied
 * @return TR_ERR_INTERNAL if the table is not sparse, a key or column does not exist, or columns do not ascend
 *
 * Called by a worker inside compute(), any number of times per clock. The rows are part of the clock's update: under BSP
 * they become visible when all updates of the clock have arrived, otherwise on arrival. The transfer proceeds in the
 * background; at most a few messages per server are in flight. Without BSP a reader sees either all or nothing of one
 * push to a row if the push is less than 256 KiB in encoded form (at least 26000 entries), and a consistent row if
 * the row is smaller than table.row_bytes.
 */
int tr_rows_push(tr_table *table, const tr_row *rows, size_t n);

/* Waits until all rows that this worker has pushed have arrived. Needed without BSP before another worker reads them. */
int tr_rows_settle(tr_table *table);

/* Declares whether a sparse table is unused in the next stages. Under BSP all ranks otherwise wait in every clock for the
 * confirmation that its updates have arrived. Pulls from and pushes to an unused table are TR_ERR_INTERNAL. All ranks,
 * before tr_run(). */
void tr_table_rest(tr_table *table, bool rests);

#ifdef __cplusplus
}
#endif
#endif
