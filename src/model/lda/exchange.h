/* What groups of workers tell each other of their topics: blocks of words and histograms, through sparse tables; and
 * what those are asked who know the model only from its tables.
 */
#ifndef TR_MODEL_LDA_EXCHANGE_H
#define TR_MODEL_LDA_EXCHANGE_H

#include "infer.h"
#include "lda.h"
#include "trireme/rows.h"

/* Lists the words that occur of a block, that of a clock's first round, as m->first_words. */
int tr_lda_list_words(struct tr_lda *m, int number);

/* Makes the block, that of a clock's first round, what the table says; with copy, memory behind it gets one, as large. */
int tr_lda_pull_block(struct tr_lda *m, const tr_block *block, bool copy);

/* Adds to the table by how much the block differs from that copy; copied false: from nothing. */
int tr_lda_push_block(struct tr_lda *m, const tr_block *block, bool copied);

/* What this worker's documents say about α: a histogram for each topic, and one of lengths. */
int tr_lda_count_documents(struct tr_lda *m, struct tr_lda_histogram *topics,
                           struct tr_lda_histogram *lengths);

/* The same from all workers: the histograms of this member's part of the topics, others are empty; lengths at member 0.
 * Before that, in an earlier clock, all must have told theirs. */
int tr_lda_tell_documents(struct tr_lda *m);
int tr_lda_ask_documents(struct tr_lda *m, const tr_worker *me, struct tr_lda_histogram *topics,
                         struct tr_lda_histogram *lengths);

/* Σ log Γ(n_wk + β) - log Γ(β) over this worker's part of the words, as the table has them. */
int tr_lda_log_table(struct tr_lda *m, const tr_worker *me, double *sum);

/* Adds how well this worker's documents are completed; outside of tr_run(), while who is no worker waits. */
int tr_lda_complete_data(struct tr_lda *m, const tr_data *data, struct tr_lda_completion *sum);

#endif
