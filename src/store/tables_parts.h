/* Inside tables in checkpoints: how a share's units become rows in ascending order, and back.
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
 *   tables/NAME_left      lists by rank: what filters and rounding hold back of updates; with _left_units, of which
 *                         units of which server, and _left_n, rows of one number
 *
 * Rows that are cut into pieces are parts of one name with different first columns, as each unit lies. Other characters
 * than letters, digits and _ become _ in NAME, and where that could be mistaken for another, __ and the number of the
 * table in its context follow.
 */
#ifndef TR_CHECKPOINT_TABLES_PARTS_H
#define TR_CHECKPOINT_TABLES_PARTS_H

#include "store/snapshot.h"
#include "table/function.h"
#include "table/server.h"
#include "table/tables.h"
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
    TR_ABOUT_LEFT, /* 1: there may be something in _left */
    TR_ABOUT_NUMBERS
};
enum { TR_FORM_DENSE, TR_FORM_HASH, TR_FORM_SPARSE };

/* A table on its way into a checkpoint or out of it. */
struct tr_kept {
    tr_snapshot *snapshot;
    struct tr_table *table;
    char name[72];                   /* "tables/NAME" */
    int64_t about[TR_ABOUT_NUMBERS]; /* of the table that was kept */
    bool same;                       /* restoring: ranks, servers and places are as they were */
};

/* The part of the table with this suffix ("" or "_state0"), nothing in it. */
struct tr_part tr_kept_part(const struct tr_kept *k, const char *suffix, enum tr_part_kind kind,
                            enum tr_part_type type);

/* Rows of a part: one run. run: memory for it, as long as the part is used. */
void tr_kept_rows(struct tr_part *part, struct tr_row_run *run, uint64_t first, uint64_t n);

/* What owners (servers, ranks) have each, of which there were as many as k->about[owners] says: whole numbers, so many
 * `columns` of n owners from the first one on; or n elements of one. Taken, or filled. */
int tr_kept_numbers(struct tr_kept *k, const char *suffix, enum tr_about owners, uint64_t first, uint64_t n,
                    size_t columns, void *values);
int tr_kept_list(struct tr_kept *k, const char *suffix, enum tr_part_type type, enum tr_about owners,
                 uint64_t owner, uint64_t n, void *values);

/* Memory for n bytes, to be freed, that is written soon. */
int tr_kept_room(uint64_t n, void **memory);

/* ---- how a share lies ---- */

/* The blocks of a share in ascending order; with hash storage its keys. */
struct tr_lay {
    uint64_t block, end; /* units of one; the last one ends there */
    uint64_t blocks;
    uint64_t *number; /* of the block in the table … */
    uint32_t *at;     /* … and in the share */
    bool straight;    /* both ascend: packed units lie as they do in the share */
};

int tr_lay_make(const struct tr_table *table, struct tr_lay *lay);
void tr_lay_free(struct tr_lay *lay);

/* Units first .. end - 1 of the table, as far as they are in the share: as runs counted from `first` on, and how many
 * there are in front of them in the share. part->run is to be freed. */
int tr_lay_runs(const struct tr_lay *lay, uint64_t first, uint64_t end, struct tr_part *part,
                uint64_t *before);

/* Copies these units of an array of the share into packed memory, and back. */
void tr_lay_gather(const struct tr_lay *lay, uint64_t first, uint64_t end, size_t unit_bytes,
                   const void *array, void *packed);
void tr_lay_scatter(const struct tr_lay *lay, uint64_t first, uint64_t end, size_t unit_bytes,
                    const void *packed, void *array);

/* Their places in the share, one by one. */
void tr_lay_places(const struct tr_lay *lay, uint32_t *place);

/* ---- what filters hold back ---- */

/* Of the views of this rank. Restoring: it is back where it was if the run goes on with the same layout; otherwise it is
 * added to the values of tables without a server function, as an update that arrives late, and lost in others. */
bool tr_kept_has_left(const struct tr_table *table);
int tr_kept_left(struct tr_kept *k);

#endif
