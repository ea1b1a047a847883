/* Topics (latent Dirichlet allocation), learnt by many workers.
 *
 * Documents, the topics of their tokens and the counts n_dk stay with their worker. Words lie in blocks (counts.h), which
 * go round in a group: in each round a member samples its tokens of the block at hand, and some times in a sweep, after
 * every round where they are few, the group adds up by how much the totals n_k have changed. Across nodes that sum is
 * waited for when the next one begins, when it has long arrived. A clock is one rotation, so one sweep over all tokens.
 *
 * With one group that is all: the table `words` is written at the end. With several, the table holds n_wk of all groups.
 * Who has a block in a clock's first rounds makes it what the table says, and a copy of it; who has it in the last rounds
 * adds to the table by how much the block differs from that copy, which is just what the group has done. So each
 * update counts once, and the group's own are in what it reads in the next clock: under BSP because all are, otherwise
 * because a group waits until its own have arrived. Others' may be there or not. As each group's own counts are never
 * negative, no sum of them is, and a worker finds all its own tokens in the block whatever it has missed of others.
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

/* A model in a file, or some of its words: counts of words, as saved.c says. */
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
    uint64_t topics, documents, words, tokens; /* the latter of all training data */
    double *alpha, beta;                       /* of a worker, or of the file */
    double log_likelihood; /* log p(w, z | α, β) per token, of the file; NaN: not known */
    struct tr_lda_saved saved;
    tr_data *test;                       /* NULL: none */
    struct tr_lda_vocabulary vocabulary; /* where the model is written */
    tr_table *table;                     /* n_wk: words × topics, sparse */
    tr_table *totals;                    /* n_k */
    tr_table
        *histograms;    /* several groups: row k: how many documents have n_dk = column; one more: lengths */
    tr_evaluation last; /* at the scheduler */

    /* what follows is a worker's */
    tr_data *train; /* until prepared */
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    tr_rotation *rotation;
    int depth;         /* blocks that this worker has between two clocks … */
    tr_block block[2]; /* … which these are, after tr_lda_look() */
    tr_view *totals_view;
    int64_t *total;                 /* n_k as this group knows them */
    int64_t *known;                 /* … with this worker's own moves, as its sampler began the round */
    double *numbers;                /* 2 topics + 3, for sums */
    struct tr_lda_count *counts[2]; /* topics each, for rows */
    uint32_t *column;               /* topics, as the next */
    int32_t *value;
    tr_key *first_words; /* of the blocks of a clock's first rounds, ascending */
    size_t n_first_words;
    struct tr_lda_histogram told;  /* several groups: what this worker has added to the histograms */
    double log_words;              /* one group: log p of the blocks of the last rounds */
    uint64_t numbers_of_documents; /* those of documents are less */
    /* Where the run goes on from a checkpoint: the clock that it goes on with, and how many groups there were. With one
     * group the blocks have the counts, with several the table. */
    int64_t first_clock, groups_before;
};

/* saved.c */
int tr_lda_fields(void *lda, tr_fields *fields);
int tr_lda_answer(void *lda, tr_query *query);
int tr_lda_inspect(void *lda, tr_query *query);
int tr_lda_centres(const void *lda, tr_saved_centres *centres);
int tr_lda_saved_phi(const struct tr_lda *lda, struct tr_lda_saved *saved); /* opens saved->phi */
void tr_lda_saved_close(struct tr_lda_saved *saved);

/* exchange.c: what groups of workers tell each other of their topics, blocks of words and histograms, through sparse
 * tables; and what those are asked who know the model only from its tables. */

/* Lists the words that occur of m->block, those of a clock's first rounds, as m->first_words. */
int tr_lda_list_words(struct tr_lda *lda);

/* The memory of that of them which has the word at this place. */
void *tr_lda_memory_of(const struct tr_lda *lda, uint64_t place);

/* Makes them what the table says; with copy, memory behind each gets one, as large. */
int tr_lda_pull_blocks(struct tr_lda *lda, bool copy);

/* Adds to the table by how much the block differs from that copy; copied false: from nothing. */
int tr_lda_push_block(struct tr_lda *lda, const tr_block *block, bool copied);

/* What this worker's documents say about α, for tr_lda_fit_alpha(). */
int tr_lda_count_documents(struct tr_lda *lda, struct tr_lda_histogram *documents);

/* The same from all workers: rows of this member's part of the topics, others are empty; lengths at member 0. All must
 * have pushed theirs in an earlier clock. */
int tr_lda_push_documents(struct tr_lda *lda);
int tr_lda_pull_documents(struct tr_lda *lda, const tr_worker *me, struct tr_lda_histogram *documents);

/* Σ log Γ(n_wk + β) - log Γ(β) over this worker's part of the words, as the table has them. */
int tr_lda_log_table(struct tr_lda *lda, const tr_worker *me, double *sum);

/* Outside of tr_run(), while the others wait: reads n words (NULL: 0, 1, …) and all totals from the tables. What
 * `saved` has is freed first. Free with tr_lda_saved_close(), also after an error. */
int tr_lda_read_tables(struct tr_lda *lda, const tr_key *words, size_t n, struct tr_lda_saved *saved);

/* Adds how well this worker's documents are completed; outside of tr_run() as well. */
int tr_lda_complete_data(struct tr_lda *lda, const tr_data *data, struct tr_lda_completion *sum);

/* Another member of the group has failed, and says why itself: there is nothing more to do. */
enum { TR_LDA_HALTED = -1 };

/* Between two clocks: fills m->block, once all of them are here, or returns TR_LDA_HALTED. */
int tr_lda_look(struct tr_lda *lda);

/* snapshot.c: what checkpoints keep of it. */
int tr_lda_snapshot(tr_worker *me, void *lda, tr_snapshot *snapshot);

/* Whether the priors are fitted before the sweep of this clock. */
bool tr_lda_fits_before(const struct tr_lda *lda, int64_t clock);

/* Several groups: blocks are exchanged through the table. */
static inline bool tr_lda_exchanges(const tr_worker *me)
{
    return me->groups > 1;
}

extern const tr_model_class tr_lda_class;

#endif
