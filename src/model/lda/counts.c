#include "sampler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, WIDEST = 65535 /* maximum of a 16-bit count */ };

/* ---- the layout ---- */

struct word {
    uint64_t tokens, number;
};

static int frequent_first(const void *x, const void *y)
{
    const struct word *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens > b->tokens ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

static enum tr_lda_row row_kind(uint64_t tokens, uint32_t topics)
{
    if (!tokens) return TR_LDA_EMPTY;
    if (tokens > WIDEST) return TR_LDA_WIDE;
    return 2 * tokens < topics ? TR_LDA_LIST : TR_LDA_DENSE;
}

/* Rows with a count per topic occupy whole cache lines, because they are read by vectors. */
static uint64_t row_bytes(enum tr_lda_row kind, uint64_t tokens, uint32_t topics)
{
    if (kind == TR_LDA_EMPTY) return 0;
    if (kind == TR_LDA_LIST) return 4 + 4 * tokens;
    return ((uint64_t)topics * (kind == TR_LDA_DENSE ? 2 : 4) + LINE - 1) / LINE * LINE;
}

int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout)
{
    struct tr_lda_layout *l = layout;
    *l = (struct tr_lda_layout){.topics = topics, .words = words, .blocks = blocks};
    if (topics < 1 || topics > TR_LDA_TOPICS)
        return tr_fail(TR_ERR_CONFIG, "model.topics: %" PRIu32 " topics: expected 1 to %d", topics,
                       TR_LDA_TOPICS);
    if (blocks < 1) return tr_fail(TR_ERR_INTERNAL, "words in %d blocks", blocks);
    for (uint64_t w = 0; w < words; w++)
        if (tokens[w] > INT32_MAX)
            return tr_fail(TR_ERR_DATA, "word %" PRIu64 ": %" PRIu64 " tokens: expected below 2^31", w + 1,
                           tokens[w]);
    TR_FREED struct word *order = NULL;
    TR_FREED int *block = NULL;
    TR_FREED uint64_t *heap = NULL; /* load of a block × blocks + block */
    TR_TRY(TR_NEW(&l->first, (size_t)blocks + 1));
    TR_TRY(TR_NEW(&l->bytes, (size_t)blocks));
    TR_TRY(TR_NEW(&l->word, words));
    TR_TRY(TR_NEW(&l->place, words));
    TR_TRY(TR_NEW(&l->row, words));
    TR_TRY(TR_NEW(&l->kind, words));
    TR_TRY(TR_NEW(&l->tokens, words));
    TR_TRY(TR_NEW(&order, words));
    TR_TRY(TR_NEW(&block, words));
    TR_TRY(TR_NEW(&heap, (size_t)blocks));
    for (uint64_t w = 0; w < words; w++) {
        order[w] = (struct word){tokens[w], w};
        l->tokens[w] = (uint32_t)tokens[w];
    }
    qsort(order, words, sizeof *order, frequent_first);

    /* Each word, in descending order of frequency, goes to the block with the fewest tokens so far. Words without tokens count as
     * one token, so that they are distributed too. */
    uint64_t n = (uint64_t)blocks, *next = l->bytes; /* temporarily the next place of each block */
    for (uint64_t b = 0; b < n; b++) heap[b] = b;
    for (uint64_t i = 0; i < words; i++) {
        block[i] = (int)(heap[0] % n);
        l->first[block[i] + 1]++;
        uint64_t top = heap[0] + (order[i].tokens + !order[i].tokens) * n, at = 0;
        for (uint64_t child = 1; child < n; child = 2 * at + 1) { /* restore the heap */
            if (child + 1 < n && heap[child + 1] < heap[child]) child++;
            if (heap[child] > top) break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = top;
    }
    for (uint64_t b = 0; b < n; b++) {
        l->first[b + 1] += l->first[b];
        next[b] = l->first[b];
    }
    for (uint64_t i = 0; i < words; i++) {
        uint64_t at = next[block[i]]++;
        l->word[at] = order[i].number;
        l->place[order[i].number] = at;
    }

    /* Frequent words come first, so that dense rows precede lists and all of them start at a cache line. */
    for (int b = 0; b < blocks; b++) {
        uint64_t at = 0;
        for (uint64_t p = l->first[b]; p < l->first[b + 1]; p++) {
            uint64_t of_word = l->tokens[l->word[p]];
            enum tr_lda_row kind = row_kind(of_word, topics);
            l->kind[p] = (uint8_t)kind;
            l->row[p] = at;
            at += row_bytes(kind, of_word, topics);
        }
        l->bytes[b] = (at + LINE - 1) / LINE * LINE;
    }
    return TR_OK;
}

void tr_lda_layout_close(struct tr_lda_layout *l)
{
    free(l->first);
    free(l->bytes);
    free(l->word);
    free(l->place);
    free(l->row);
    free(l->kind);
    free(l->tokens);
    *l = (struct tr_lda_layout){0};
}

/* Words of a block are in descending order of frequency and are dealt to its parts in turn. */
uint32_t tr_lda_layout_part(const struct tr_lda_layout *l, uint64_t place, uint32_t parts)
{
    uint64_t block = 0, blocks = (uint64_t)l->blocks;
    for (uint64_t end = blocks; end - block > 1;) {
        uint64_t middle = block + (end - block) / 2;
        if (place < l->first[middle]) end = middle;
        else block = middle;
    }
    uint64_t first = block * parts / blocks, n = (block + 1) * parts / blocks - first;
    return (uint32_t)(first + (place - l->first[block]) % (n + !n));
}

/* ---- rows ---- */

static int counts_by_topic(const void *x, const void *y)
{
    const struct tr_lda_count *a = x, *b = y;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

size_t tr_lda_collect(struct tr_lda_cursor cursor, struct tr_lda_count *counts)
{
    size_t n = 0;
    while (tr_lda_next(&cursor)) counts[n++] = (struct tr_lda_count){cursor.topic, cursor.count};
    if (cursor.kind == TR_LDA_LIST) qsort(counts, n, sizeof *counts, counts_by_topic);
    return n;
}

/* at: index in a list. */
static int write_count(const struct tr_lda_layout *l, uint64_t place, void *row, uint32_t at, uint32_t topic,
                       uint64_t count)
{
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    uint64_t word = l->word[place];
    if (kind == TR_LDA_EMPTY || (kind == TR_LDA_LIST && at >= l->tokens[word]))
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ": more topics than it has tokens", word + 1);
    if (topic >= l->topics || count > (kind == TR_LDA_WIDE ? UINT32_MAX : WIDEST))
        return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ", topic %" PRIu32 ": a count outside its range",
                       word + 1, topic);
    if (kind == TR_LDA_LIST) ((uint32_t *)row)[1 + at] = topic | (uint32_t)count << 16;
    else if (kind == TR_LDA_DENSE) ((uint16_t *)row)[topic] = (uint16_t)count;
    else ((uint32_t *)row)[topic] = (uint32_t)count;
    return TR_OK;
}

int tr_lda_row_add(const struct tr_lda_layout *l, void *block, uint64_t place, uint32_t topic)
{
    void *row = (char *)block + l->row[place];
    uint32_t *list = row, at = 0;
    uint64_t count = 0;
    if (l->kind[place] == TR_LDA_LIST) {
        while (at < list[0] && (list[1 + at] & 0xffff) != topic) at++;
        if (at < list[0]) count = list[1 + at] >> 16;
    } else if (l->kind[place] != TR_LDA_EMPTY && topic < l->topics) {
        count = l->kind[place] == TR_LDA_DENSE ? ((uint16_t *)row)[topic] : list[topic];
    }
    TR_TRY(write_count(l, place, row, at, topic, count + 1));
    if (l->kind[place] == TR_LDA_LIST && at == list[0]) list[0]++;
    return TR_OK;
}

int tr_lda_row_write(const struct tr_lda_layout *l, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n)
{
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    uint32_t *row = (void *)((char *)block + l->row[place]), length = 0;
    if (kind == TR_LDA_DENSE || kind == TR_LDA_WIDE) memset(row, 0, row_bytes(kind, 1, l->topics));
    for (size_t i = 0; i < n; i++)
        if (counts[i].count) TR_TRY(write_count(l, place, row, length++, counts[i].topic, counts[i].count));
    if (kind == TR_LDA_LIST) row[0] = length;
    return TR_OK;
}

void tr_lda_block_totals(const struct tr_lda_layout *l, int number, const void *block, int64_t *total)
{
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++)
        for (struct tr_lda_cursor c = tr_lda_row(l, block, p); tr_lda_next(&c);) total[c.topic] += c.count;
}
