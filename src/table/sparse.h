/* Shares whose rows are sparse: what a server keeps of such a table, and how rows travel.
 *
 * Each row is a compact list: its columns, ascending, and their values in an array of its own beside them, zeros left
 * out. 8 bytes an entry, a quarter more where a row has grown, and 16 bytes a row.
 *
 * In messages an entry is its column's distance from the one before and its value, both as few bytes as they need: 7
 * bits a byte, lowest first, the upper bit says that more follow. Whole numbers are written with their sign in the
 * lowest bit (Protocol Buffers call it zigzag), reals as 4 bytes in the order of the machine. A row, or a part of one,
 * has the number of its entries (uint32) in front. So counts of words and topics take 2 to 3 bytes.
 */
#ifndef TR_TABLE_SPARSE_H
#define TR_TABLE_SPARSE_H

#include "base/base.h"
#include "trireme/table.h"

struct tr_sparse_row {
    uint32_t n, room;
    uint32_t *column; /* room of them; the values, 4 bytes each, follow */
};

struct tr_sparse {
    bool real; /* TR_F32; else TR_I32 */
    uint64_t rows;
    struct tr_sparse_row *row;
    uint64_t entry_bytes;     /* of all rows, with their spare room */
    uint32_t *column, *value; /* one row of a message */
    size_t column_room, value_room;
};

static inline void *tr_sparse_values(const struct tr_sparse_row *row)
{
    return row->column + row->room;
}

/* Rows of zeros. TR_ERR_SYSTEM without memory. */
int tr_sparse_open(enum tr_dtype dtype, uint64_t rows, struct tr_sparse **sparse);
void tr_sparse_close(struct tr_sparse **sparse);

/* Adds n values at ascending columns to a row, and leaves out what becomes zero. value: n int32_t or float. TR_ERR_SYSTEM
 * without memory: the row is as before. Whole numbers that exceed 32 bits wrap. */
int tr_sparse_add(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Makes a row just these n entries, as tr_sparse_add() to an empty one. */
int tr_sparse_set(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Bytes of the share: rows, entries and their spare room. */
uint64_t tr_sparse_bytes(const struct tr_sparse *sparse);

/* ---- rows in messages ---- */

enum { TR_SPARSE_HEAD = 4, TR_SPARSE_ENTRY_MOST = 10 };

/* Writes as many of n entries as fit into `room` bytes (TR_SPARSE_HEAD and TR_SPARSE_ENTRY_MOST at least), and their
 * number in front. *bytes: how long that is. Returns how many. */
uint32_t tr_sparse_write(bool real, uint32_t n, const uint32_t *column, const void *value, unsigned char *out,
                         size_t room, size_t *bytes);

/* The number of entries of the row that comes next; false where the bytes end or the row cannot be in them. */
bool tr_sparse_next(const unsigned char *at, const unsigned char *end, uint32_t *n);

/* Reads such a row: room for that many columns, which ascend below `width`, and values. false: it is none. */
bool tr_sparse_read(bool real, uint64_t width, const unsigned char **at, const unsigned char *end,
                    uint32_t *column, void *value);

/* ---- requests ---- */

/* One row that is asked for. */
struct tr_sparse_request {
    uint32_t position, from; /* only columns from there on */
};

/* In front of the rows of an answer, in the order of the requests. Only a row that is longer than an answer is cut. */
struct tr_sparse_head {
    uint32_t bytes; /* that follow */
    uint32_t rows;  /* that are complete */
    uint32_t cut;   /* one more follows, of which the rest is to be asked for … */
    uint32_t from;  /* … from this column on */
};

/* Answers n requests (4 bytes each for position and column, unaligned) into `room` bytes behind the head. TR_ERR_PEER: a
 * row that is not there. */
int tr_sparse_answer(const struct tr_sparse *sparse, uint32_t n, const void *requests, unsigned char *out,
                     size_t room, struct tr_sparse_head *head);

/* Adds an update, rows with their positions (uint32) in front. TR_ERR_PEER: it is none. */
int tr_sparse_take(struct tr_sparse *sparse, uint64_t width, const void *update, size_t bytes);

#endif
