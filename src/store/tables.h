/* Tables in checkpoints: how they are kept, and how a share's units become rows in ascending order, and back.
 *
 * A table NAME is kept as
 *   tables/NAME_about     common: what table it is, and how it lay on its servers (enum tr_about)
 *   tables/NAME_function  common: the name of its server function, as bytes
 *   tables/NAME           rows by key; of sparse rows, lists of values
 *   tables/NAME_columns   sparse rows: lists of their columns
 *   tables/NAME_lengths   sparse rows: rows of one number
 *   tables/NAME_state0 …  rows by key: the state of its function
 *   tables/NAME_servers   rows by server: keys present (hash storage), bytes of _own
 *   tables/NAME_order     lists by server: hash storage: its keys in the order in which they came
 *   tables/NAME_own       lists by server: bytes that the function saves
 *   tables/NAME_left      lists by rank: residuals, what filters and rounding hold back of updates; with _left_units, of
 *                         which units of which server, and _left_n, rows of one number
 *
 * Rows that are cut into pieces are parts of one name with different first columns, as each unit lies. Other characters
 * than letters, digits and _ become _ in NAME, and where that could be mistaken for another, __ and the number of the
 * table in its context follow.
 */
#ifndef TR_STORE_TABLES_H
#define TR_STORE_TABLES_H

#include "store/snapshot.h"
#include "table/function.h"
#include "table/server.h"
#include "table/table.h"
#include "table/view.h"

/* What tables/NAME_about says, number by number. */
enum tr_about {
    TR_ABOUT_FORM, /* 0 dense, 1 hash storage, 2 sparse rows */
    TR_ABOUT_TYPE,
    TR_ABOUT_KEYS,
    TR_ABOUT_WIDTH,
    TR_ABOUT_PIECES,
    TR_ABOUT_SERVERS,
    TR_ABOUT_FIRST_SERVER,
    TR_ABOUT_PARTITION, /* its print */
    TR_ABOUT_STATES,
    TR_ABOUT_RANKS,
    TR_ABOUT_LEFT, /* 1: there may be residuals */
    TR_ABOUT_NUMBERS
};
enum { TR_FORM_DENSE, TR_FORM_HASH, TR_FORM_SPARSE };

/* A table on its way into a checkpoint or out of it. */
struct tr_saved {
    tr_snapshot *snapshot;
    struct tr_table *table;
    bool restores;
    char name[72];                   /* "tables/NAME" */
    int64_t about[TR_ABOUT_NUMBERS]; /* of the table that was kept */
    bool same;                       /* restoring: ranks, servers and places are as they were */
};

/* Takes or fills the part with this suffix: n rows of `columns` elements, of `total`, from `first` on; of lists, row `first`
 * alone, with n elements. What is common is rank 0's. */
int tr_saved_part(const struct tr_saved *s, const char *suffix, enum tr_part_kind kind,
                  enum tr_part_type type, uint64_t total, uint64_t columns, uint64_t first, uint64_t n,
                  void *values);

/* ---- tables_order.c: how a share lies ---- */

/* The blocks of a share in ascending order; with hash storage its keys. */
struct tr_order {
    uint64_t block, end; /* units of one; the last one ends there */
    uint64_t blocks;
    uint64_t *number; /* of the block in the table … */
    uint32_t *at;     /* … and in the share */
    bool straight;    /* both ascend: packed units lie as they do in the share */
};

int tr_order_make(const struct tr_table *table, struct tr_order *order);
void tr_order_free(struct tr_order *order);

/* Units first .. end - 1 of the table, as far as they are in the share: as runs counted from `first` on, and how many
 * there are in front of them in the share. part->run is to be freed. */
int tr_order_runs(const struct tr_order *order, uint64_t first, uint64_t end, struct tr_part *part,
                  uint64_t *before);

/* Copies these units of an array of the share into packed memory (gather), or back. */
void tr_order_copy(const struct tr_order *order, uint64_t first, uint64_t end, size_t unit_bytes, bool gather,
                   void *packed, void *array);

/* Their places in the share, one by one. */
void tr_order_places(const struct tr_order *order, uint32_t *place);

/* ---- tables_residuals.c: what filters hold back ---- */

/* Of the views of this rank. Restoring: it is back where it was if the run goes on with the same layout; otherwise it is
 * added to the values of tables without a server function, as an update that arrives late, and lost in others. */
bool tr_has_residuals(const struct tr_table *table);
int tr_saved_residuals(struct tr_saved *s);

#endif
