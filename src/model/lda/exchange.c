#include "model/lda/exchange.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "table/rows.h"

/* How often a row is asked for again that came in parts of different times. */
enum { TRIES = 1000 };

/* ---- blocks ---- */

int tr_lda_wait_until_told(struct tr_lda *m)
{
    TR_WAIT_UNTIL(m->tr, tr_rows_sending(m->table) == INT64_MAX, "the servers of table %s to take what was added",
                  m->table->name);
    return TR_OK;
}

struct pull {
    struct tr_lda *m;
    void *block;
    tr_key *again; /* words whose rows came in parts that do not fit together */
    size_t n_again;
};

/* A list has room for as many topics as the word has tokens, and whole rows have no more. Without BSP a long row may
 * come in parts, and between two of them others' tokens may have changed topics. */
static bool fits(const struct tr_lda *m, uint64_t place, size_t n, uint64_t tokens)
{
    return m->layout.kind[place] != TR_LDA_LIST || (n <= tokens && tokens <= UINT16_MAX);
}

static int take_row(void *state, const tr_row *row)
{
    struct pull *p = state;
    struct tr_lda *m = p->m;
    const int32_t *value = row->value;
    uint64_t place = m->layout.place[row->key], tokens = 0;
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        if (value[i] <= 0) continue; /* nobody has so few: it is being changed just now */
        m->counts[0][n++] = (struct tr_lda_count){row->column[i], (uint32_t)value[i]};
        tokens += (uint64_t)value[i];
    }
    if (!tr_in_lockstep(m->tr) && (!fits(m, place, n, tokens) || tokens != m->tokens_of[place])) {
        p->again[p->n_again++] = row->key;
        return TR_OK;
    }
    return tr_lda_row_write(&m->layout, p->block, place, m->counts[0], n);
}
