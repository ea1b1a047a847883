/* Topic models (latent Dirichlet allocation) on many workers.
 *
 * Documents, the topics of their tokens and the counts n_dk stay with their worker. Words are divided into blocks
 * (counts.h), which rotate through the group. In each round a member samples its tokens of the words in its current block.
 * At most SUMS times per sweep the group sums the changes of the totals n_k. Across nodes a sum is waited for when the
 * next one begins. A clock is one rotation, which is one sweep over all tokens.
 *
 * With one group the table `words` is written at the end only. With several groups it contains n_wk of all groups. The
 * member that has a block in the first rounds of a clock reads it from the table and makes a copy. The member that has it
 * in the last rounds adds the difference from that copy, which is the change made by the group, to the table. Each update
 * thus counts once. A group reads its own updates in the next clock: under BSP together with all others, otherwise because
 * a group waits until its own have arrived. The counts of each group are never negative, hence no sum of them is, and a
 * worker finds all of its own tokens in the block even if updates of other groups are missing.
 *
 * Source: Newman et al., Distributed algorithms for topic models, JMLR 2009; Yu et al., Angel, section 5 (LDA by
 * rotation); Wang et al., STRADS (totals that are a round old).
 */
#ifndef TR_MODEL_LDA_H
#define TR_MODEL_LDA_H

#include "counts.h"
#include "infer.h"
#include "priors.h"
#include "sampler.h"
#include "trireme/rows.h"
#include "trireme/trireme.h"
#include "vocabulary.h"

struct tr_lda_settings {
    uint64_t topics;
    double alpha; /* or TR_JOB_AUTO */
    double beta;
    bool optimize;
    uint64_t optimize_every;
};

/* Counts of all or some words, in the form of the model file (saved.c). */
struct tr_lda_saved {
    uint64_t *begin;
    uint16_t *topic;
    uint32_t *count;
    int64_t *total;
    struct tr_lda_phi phi;
};

struct tr_lda {
    tr_context *tr;
    const tr_job *job;
    const struct tr_lda_settings *o;
    uint64_t topics, documents, words, tokens; /* of all training data */
    double *alpha, beta;                       /* on workers, or from the file */
    double log_likelihood; /* log p(w, z | α, β) per token, from the file; NaN: unknown */
    struct tr_lda_saved saved;
    tr_data *test;                       /* NULL: none */
    struct tr_lda_vocabulary vocabulary; /* on all ranks */
    tr_table *table;                     /* n_wk: words × topics, sparse */
    tr_table *totals;                    /* n_k */
    /* Row k: the number of documents with n_dk = column; the last row: lengths of documents. */
    tr_table *histograms;
    tr_evaluation last; /* on the scheduler */

    /* state of a worker */
    tr_data *train; /* closed after preparation unless there are test data */
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    tr_rotation *rotation;
    int depth;         /* number of blocks that this worker has between two clocks */
    tr_block block[2]; /* these blocks, after tr_lda_look() */
    tr_view *totals_view;
    int64_t *total;                 /* n_k as summed by the group */
    int64_t *known;                 /* total and this worker's own changes, at the begin of the round */
    double *numbers;                /* 2 topics + 3, for sums */
    struct tr_lda_count *counts[2]; /* topics elements each, for rows */
    uint32_t *column;               /* topics elements, for rows */
    int32_t *value;
    tr_key *first_words; /* words of the blocks in a clock's first rounds, ascending */
    size_t n_first_words;
    struct tr_lda_histogram sent;  /* several groups: the histograms that this worker has pushed */
    double log_words;              /* one group: log p of the blocks of the last rounds */
    uint64_t numbers_of_documents; /* upper bound of the numbers of documents */
    /* After a restart: the first clock, and the number of groups in the checkpoint. With one group the counts were stored
     * with the blocks, with several in the table. */
    int64_t first_clock, groups_before;
};

/* ---- model file, predict, evaluate, inspect (saved.c) ---- */

int tr_lda_fields(void *lda, tr_fields *fields);
int tr_lda_answer(void *lda, tr_query *query);
int tr_lda_inspect(void *lda, tr_query *query);
int tr_lda_centres(const void *lda, tr_saved_centres *centres);
int tr_lda_saved_phi(const struct tr_lda *lda, struct tr_lda_saved *saved); /* opens saved->phi */
void tr_lda_saved_close(struct tr_lda_saved *saved);

/* ---- exchange of counts between groups through sparse tables, and reading of these tables (exchange.c) ---- */

/* Lists the words with tokens of m->block, the blocks of a clock's first rounds, in m->first_words. */
int tr_lda_list_words(struct tr_lda *lda);

/* Returns the memory of the block in m->block that has the word at this place. */
void *tr_lda_memory_of(const struct tr_lda *lda, uint64_t place);

/* Reads the blocks m->block from the table. With copy, a second copy is written behind each block. */
int tr_lda_pull_blocks(struct tr_lda *lda, bool copy);

/* Adds the difference between the block and its copy to the table; without a copy, the whole block. */
int tr_lda_push_block(struct tr_lda *lda, const tr_block *block, bool copied);

/* Counts this worker's documents for tr_lda_fit_alpha(). */
int tr_lda_count_documents(struct tr_lda *lda, struct tr_lda_histogram *documents);

/* The same over all workers: each worker pushes its histograms; a clock later each member pulls the rows of its part of the
 * topics (other rows are empty), and member 0 the lengths. */
int tr_lda_push_documents(struct tr_lda *lda);
int tr_lda_pull_documents(struct tr_lda *lda, const tr_worker *me, struct tr_lda_histogram *documents);

/* Adds log Γ(n_wk + β) - log Γ(β) over this worker's part of the words in the table to *sum. */
int tr_lda_log_table(struct tr_lda *lda, const tr_worker *me, double *sum);

/* Reads n words (NULL: 0, 1, …) and all totals from the tables. Outside tr_run(), while other ranks wait.
 *
 * @param [in,out] saved  freed first; free it with tr_lda_saved_close(), also after an error
 */
int tr_lda_read_tables(struct tr_lda *lda, const tr_key *words, size_t n, struct tr_lda_saved *saved);

/* Adds the result of document completion on this worker's documents. Outside tr_run(). */
int tr_lda_complete_data(struct tr_lda *lda, const tr_data *data, struct tr_lda_completion *sum);

/* Status: another member of the group has failed and reports the error; the stage ends. */
enum { TR_LDA_HALTED = -1 };

/* Waits, between two clocks, for the blocks of this worker and stores them in m->block. */
int tr_lda_look(struct tr_lda *lda);

/* Lists the state in checkpoints (snapshot.c). */
int tr_lda_snapshot(tr_worker *me, void *lda, tr_snapshot *snapshot);

/* Returns whether the priors are fitted before the sweep of this clock. */
bool tr_lda_fits_before(const struct tr_lda *lda, int64_t clock);

/* Returns whether there are several groups, which exchange blocks through the table. */
static inline bool tr_lda_exchanges(const tr_worker *me)
{
    return me->groups > 1;
}

extern const tr_model_class tr_lda_class;

#endif
