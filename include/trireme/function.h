/* Server functions, which servers apply to updates, and queries that servers answer from the parameters that they store
 * (Parameter Server: user-defined functions on the server; DynSGD, algorithm 2).
 *
 * If a table has no server function, updates are added to its values. If it has one, the server calls it with each complete update
 * of a worker (of a group, if groups push together), in order of arrival; under BSP in order of workers when all updates of a clock
 * have arrived. Built-in functions:
 *
 *   add, assign, max   value += u, value = u, value = max(value, u)
 *   scale              value += rate u; the argument of tr_table_use() is the rate, a double (NULL: 1 / number of pushers)
 *   dyn, dyn-stable    DynSGD: weights updates by their staleness; with dyn-stable, all servers return the same version
 *   agree              weights updates by their agreement with other updates of the same version
 *   sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, ftrl
 *                      updates are gradients; the argument is a tr_optimizer
 *
 * User-defined functions are registered by name on all ranks before a table uses them.
 *
 * Example: a table whose updates are clipped.
 *
 *     static int clip(tr_share *share, const tr_update *update)
 *     {
 *         float *value = share->value;
 *         const float *u = update->value;
 *         for (size_t i = 0; i < update->n; i++)
 *             value[update->unit ? update->unit[i] : i] += fminf(fmaxf(u[i], -1), 1);
 *         return TR_OK;
 *     }
 *     ...
 *     TR_TRY(tr_function_register(tr, &(tr_function){.name = "clip", .update = clip}));
 *     TR_TRY(tr_table_use(table, "clip", NULL));
 */
#ifndef TRIREME_FUNCTION_H
#define TRIREME_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TR_STATE_ARRAYS = 4 }; /* maximum number of state arrays of a function */

/* The shard of a table that one server stores, as passed to server functions. A unit is a key, or a piece of a row above 16 KiB;
 * units are numbered by their position in the shard. With hash storage the units are the keys that updates have changed, in order
 * of arrival: the next update may add units and change the addresses `value` and `state`. */
typedef struct tr_share {
    const char *table; /* name of the table */
    enum tr_dtype dtype;
    size_t width;                 /* elements per unit */
    size_t units;                 /* number of units in this shard */
    bool growing;                 /* hash storage: the number of units may grow */
    void *value;                  /* units × width elements */
    void *state[TR_STATE_ARRAYS]; /* arrays of the shape of value, for use by the function; zeros at first */
    void *own;                    /* data that tr_function.open() allocated */
    const void *argument;         /* copy of the argument of tr_table_use() */
    int server;                   /* index of this server among the table's servers */
    int pushers;                  /* number of workers, or groups, that push to the table in this stage */
    int64_t stable;               /* lowest version that all servers of the table have reached */
    const struct tr_table *place; /* private, for tr_share_key() and the other functions below */
} tr_share;

/* Returns the key of a unit, or UINT64_MAX for a unit that only pads the shard. */
tr_key tr_share_key(const tr_share *share, size_t unit);

/* Returns the number of pieces per key. */
uint32_t tr_share_pieces(const tr_share *share);

/* Finds a piece of a key in this shard.
 *
 * @param [out] unit  the unit of this piece; unchanged if not found
 * @return whether the piece is stored in this shard. With hash storage a key without updates is not stored
 */
bool tr_share_find(const tr_share *share, tr_key key, uint32_t piece, size_t *unit);

/* Returns whether this shard is the one that stores, or would store, a piece of a key. */
bool tr_share_has_place(const tr_share *share, tr_key key, uint32_t piece);

/* One complete update of one pusher. */
typedef struct tr_update {
    int pusher;    /* index of the worker or group, 0 .. pushers - 1; -1: sum of all (tr_function.merged) */
    int64_t clock; /* clock of the pusher; it does not restart at 0 when a run resumes */
    int64_t seen;  /* version of this shard that the pusher read last, plus the number of its updates since */
    int64_t version;      /* result of tr_function.map(), or the pusher's clock if map is NULL */
    size_t n;             /* number of units */
    const uint32_t *unit; /* n units in ascending order; NULL: 0 .. n - 1 */
    const void *value;    /* n × width elements, packed */
} tr_update;

/* A server function. All members except name and update may be NULL or zero. The functions run on servers, must not call
 * table or stage functions, and return a status: an error ends the job, and the message names function, table and
 * server. */
typedef struct tr_function {
    const char *name;
    size_t state_arrays; /* number of state arrays, at most TR_STATE_ARRAYS */
    bool merged;         /* under BSP: called once per clock with the sum of all updates */
    /* Units of an update that are all zeros have no effect, so they are not sent. If neither `sparse` nor `gradients` is set, they
     * are sent, and hash storage stores their keys. */
    bool sparse;
    /* Updates are gradients, not steps: units of zeros are not sent, and a worker does not add its own updates to its copy. */
    bool gradients;
    size_t argument; /* size in bytes of the argument of tr_table_use() */

    /* Allocates share->own; close() frees it. */
    int (*open)(tr_share *share);
    void (*close)(tr_share *share);

    /* Computes the version of the shard that an update belongs to. */
    int (*map)(const tr_share *share, const tr_update *update, int64_t *version);

    /* Applies an update to share->value. */
    int (*update)(tr_share *share, const tr_update *update);

    /* Called after updates: frees state that only versions below `version` need. No pusher will refer to them again. */
    int (*expire)(tr_share *share, int64_t version);

    /* Writes the values of n units in this version to `packed`. NULL: workers read share->value. If read is set, workers read the
     * table by request messages, also within a node. */
    int (*read)(const tr_share *share, int64_t version, size_t n, const uint32_t *unit, void *packed);

    /* Returns the size of share->own in bytes, for reports. */
    size_t (*memory)(const tr_share *share);

    /* Checkpoints contain value (or, if read is set, its result for version INT64_MAX) and the state arrays. Versions continue to
     * count when a run resumes. save() copies the content of share->own into memory from malloc(), between two clocks, without
     * changing anything; *data may be NULL. load() restores share->own after value and state were restored. If `same`, the
     * shard has the same units, and load() is called once with the data of this server. Otherwise it is called once for each server
     * of the checkpoint. */
    int (*save)(const tr_share *share, void **data, size_t *bytes);
    int (*load)(tr_share *share, bool same, int server, int servers, const void *data, size_t bytes);
} tr_function;

/* Registers a function by its name. All ranks must call it, before tr_table_use().
 *
 * @param [in] function  copied; the name must outlive the context
 */
int tr_function_register(tr_context *tr, const tr_function *function);

/* Selects the function of a table from the next stage on. All ranks must call it, outside tr_run(), before views of the table are
 * opened.
 *
 * @param [in] argument  tr_function.argument bytes; copied
 * @return TR_ERR_CONFIG for an unknown name
 */
int tr_table_use(tr_table *table, const char *function, const void *argument);

/* Replaces the argument of the function and keeps its state. All ranks must call it, while no updates are in flight, for example in
 * a snapshot function that restores. */
int tr_table_set_argument(tr_table *table, const void *argument);

/* ---- queries ---- */

/* A query that each server computes on its shard and the caller combines. */
typedef struct tr_answer {
    const char *name;
    bool values_only; /* get() reads share->value only: a rank that can read the shard itself may call it */

    /* Computes the result of one shard. *bytes is the size of the buffer `result` on entry, and the used size on return. */
    int (*get)(const tr_share *share, const void *question, size_t question_bytes, void *result,
               size_t *bytes);

    /* Adds the result of another shard to `result`; room is the size of the buffer `result`. */
    int (*combine)(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes);
} tr_answer;

/* Registers a query by its name. All ranks must call it. */
int tr_answer_register(tr_context *tr, const tr_answer *answer);

/* A function for tr_answer.combine: adds arrays of doubles, of any alignment, element by element. Returns TR_ERR_INTERNAL if the
 * sizes differ. */
int tr_answer_add_doubles(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes);

/* Sends a query to all servers of the table. One worker calls it inside a stage. Under BSP, if the worker calls it between its pull
 * and its push, the result is computed from the parameters that it pulled.
 *
 * @param [in]     question  question_bytes bytes, as the query defines them
 * @param [out]    result    the combined result
 * @param [in,out] bytes     size of the buffer `result` on entry, used size on return
 */
int tr_table_ask(tr_table *table, const char *answer, const void *question, size_t question_bytes,
                 void *result, size_t *bytes);

/* Built-in queries. Questions and results have the types below, in any alignment. Too small a buffer, or a question of the
 * wrong size, is TR_ERR_INTERNAL.
 *
 *   squares   nothing → double            sum of the squares of all elements
 *   sum1      nothing → double            sum of the absolute values
 *   nonzeros  nothing → uint64_t          number of elements that are not 0
 *   dot       tr_key a, b → struct tr_dot inner product of the rows a and b
 *   top       uint32_t k → struct tr_top  the k largest elements; for tables of one row; the result has room for k pairs
 *   present   struct tr_range → uint64_t  number of stored keys in the range; with hash storage, those with updates
 *   soft      struct tr_soft → n × columns doubles (one row: n): every element v of the keys from `first` on as
 *             sign(v) max(|v| - threshold, 0), the proximal step of l1
 */

/* Inner product of two rows, over the pieces that are stored on the same server. */
struct tr_dot {
    double sum;
    uint64_t pieces; /* number of pieces in the sum; the sum is complete if it equals tr_share_pieces() */
};

/* The k elements of largest magnitude in descending order, equal magnitudes in ascending order of keys, without zeros. */
struct tr_top {
    uint32_t k, n; /* requested and returned number of pairs */
    struct tr_top_pair {
        tr_key key;
        double value;
    } pair[];
};

/* Keys first .. first + n - 1. */
struct tr_range {
    tr_key first, n;
};

struct tr_soft {
    tr_key first, n;
    double threshold;
};

/* ================ optimizers ================ */

/* Gradient optimizers. They are server functions (tr_table_use(); the servers store the optimizer state) and local steps
 * (tr_optimizer_step(); the worker stores the state).
 *
 * A step changes every element w by its gradient g. c is the clock, counted from 0. The rate of clock c is
 * r = rate / sqrt(decay c + 1), or rate (1 - c / horizon). State arrays have the size of w and start at zero:
 *
 *   sgd             w -= r g
 *   momentum     m  m = μ m + r g;  w -= m                                (Polyak 1964; FlexPs-lite, 3.2.1)
 *   nesterov     m  m = μ m + r g;  w -= μ m + r g                        (Nesterov 1983; FlexPs-lite, 3.2.2)
 *   adagrad      s  s += g²;  w -= r g / (√s + ε)                         (Duchi, Hazan and Singer 2011, figure 1)
 *   adadelta   s d  s = ρ s + (1-ρ) g²;  u = g √(d + ε) / √(s + ε);
 *                   d = ρ d + (1-ρ) u²;  w -= r u                         (Zeiler 2012, algorithm 1, where r is 1)
 *   rmsprop      s  s = ρ s + (1-ρ) g²;  w -= r g / (√s + ε)              (Tieleman and Hinton 2012)
 *   adam       m s  m = μ m + (1-μ) g;  s = ρ s + (1-ρ) g²;
 *                   w -= r m' / (√s' + ε),  m' = m / (1 - μ^(c+1)),
 *                                           s' = s / (1 - ρ^(c+1))        (Kingma and Ba 2015, algorithm 1)
 *   ftrl       z s  z += g - w (√(s + g²) - √s) / rate;  s += g²;
 *                   w = 0 where |z| ≤ l1, else
 *                   w = -(z - sign(z) l1) / ((ε + √s) / rate + l2)        (McMahan et al. 2013, algorithm 1)
 *
 * μ is momentum, ρ is memory, ε is epsilon. With nesterov the table stores the look-ahead point θ - μ m: workers compute
 * gradients at the value that they read, so the method is exact with one stored value per key. ftrl has no decay: its
 * rates decrease by themselves and z is valid for one rate only; its ε is the paper's β, and l1 and l2 weigh against the
 * sum of all gradients. With l1 = l2 = 0 its steps are those of adagrad. The value of w may differ from the one that follows from
 * its gradients, because of an initial value or another writer.
 *
 * Sparse updates: a step changes the elements that it names, including their state, and no others. A local step names
 * the elements that the caller passes, even with a gradient of 0. A server step names the units (keys, or pieces of wide
 * rows) whose gradient is not all zeros. For sgd, adagrad and ftrl this changes nothing except weight decay. The others
 * become the usual lazy variants: m and s are averages over the steps that name the element, and momentum does not move
 * w between them. Adam's bias correction uses the clock, as published: exact for keys that are named in every clock. A
 * key that is first named late starts with a step of (1-μ)/√(1-ρ) times the rate (3.2 for μ = 0.9 and the default ρ).
 *
 * Example:
 *
 *     tr_optimizer adam = {.kind = TR_ADAM, .rate = 0.01, .momentum = 0.9};
 *     TR_TRY(tr_table_use(table, tr_optimizer_name(adam.kind), &adam));
 */

enum tr_optimizer_kind {
    TR_SGD,
    TR_MOMENTUM,
    TR_NESTEROV,
    TR_ADAGRAD,
    TR_ADADELTA,
    TR_RMSPROP,
    TR_ADAM,
    TR_FTRL
};

/* Parameters of an optimizer; the argument of the server function of the same name as the kind. */
typedef struct tr_optimizer {
    enum tr_optimizer_kind kind;
    double rate, decay; /* rate of clock c: rate / sqrt(decay c + 1); ftrl ignores decay */
    double horizon;     /* above 0: the rate also decreases linearly to 0 at this clock (ftrl too) */
    double momentum;    /* μ in [0, 1), for momentum, nesterov, adam */
    double memory;  /* ρ in (0, 1), for adadelta, rmsprop, adam; if 0 or less, 0.99, 0.99, 0.999 are used */
    double epsilon; /* ε, for kinds that divide; if 0 or less, 1e-8 is used, for adadelta 1e-6 */
    double l1;      /* for ftrl: see the formula above */
    /* For ftrl at the servers: number of keys that l1 applies to, the first ones; the table may have one more, a bias. 0: all keys.
     * tr_optimizer_step() applies l1 to all units. */
    tr_key l1_keys;
    /* For ftrl: see the formula above. For other kinds: weight decay, the gradient becomes g + l2 w; elements that a step does not
     * name do not decay. Not negative. */
    double l2;
} tr_optimizer;

/* Returns the name of a kind and of its server function ("sgd", "momentum", ...), or NULL for an unknown kind. */
const char *tr_optimizer_name(enum tr_optimizer_kind kind);

/* Returns the number of state arrays of a kind, 0 to 2. */
size_t tr_optimizer_arrays(enum tr_optimizer_kind kind);

/* Copies an optimizer, fills in defaults and checks it.
 *
 * @param [out] resolved  the copy
 * @return TR_OK, or TR_ERR_CONFIG for an unknown kind or a number outside its range; the functions below require
 *         valid parameters
 */
int tr_optimizer_resolve(const tr_optimizer *optimizer, tr_optimizer *resolved);

/* Returns the rate of a clock. */
double tr_optimizer_rate(const tr_optimizer *optimizer, int64_t clock);

/* Performs one step on n units of `width` elements. No communication; any rank, on its own memory.
 *
 * @param [in]     optimizer  resolved or not
 * @param [in]     dtype      TR_F32 or TR_F64; other types are left unchanged
 * @param [in]     clock      from 0
 * @param [in]     unit       n distinct units in any order; NULL: 0 .. n - 1
 * @param [in]     gradient   n × width elements, packed
 * @param [in,out] value      units × width elements, indexed by unit
 * @param [in,out] state      tr_optimizer_arrays() arrays of the shape of value, zeros at first; NULL for sgd
 *
 * gradient, value and the state arrays must not overlap.
 */
void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradient, void *value,
                       void *const state[]);

#ifdef __cplusplus
}
#endif
#endif
