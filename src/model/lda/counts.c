#include "counts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, WIDEST = 65535 /* tokens whose counts fit in 16 bits */ };

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

/* A row begins where it can be read by vectors, or at least by pairs. */
static uint64_t row_bytes(enum tr_lda_row kind, uint64_t tokens, uint32_t topics)
{
    switch (kind) {
    case TR_LDA_LIST: return 4 + 4 * tokens;
    case TR_LDA_DENSE: return ((uint64_t)topics * 2 + LINE - 1) / LINE * LINE;
    case TR_LDA_WIDE: return ((uint64_t)topics * 4 + LINE - 1) / LINE * LINE;
    default: return 0;
    }
}

/* Gives each word, frequent ones first, to the block with the fewest tokens so far. Words that occur nowhere count as
 * one token, so that a vocabulary's unused part is spread as well. */
static int spread(const struct word *words, uint64_t n, int blocks, int *block, uint64_t *in_block)
{
    uint64_t *heap; /* load of blocks × blocks + block: the least on top */
    uint64_t *load;
    TR_TRY(TR_NEW(&heap, (size_t)blocks));
    int status = TR_NEW(&load, (size_t)blocks);
    if (status != TR_OK) {
        free(heap);
        return status;
    }
    for (int b = 0; b < blocks; b++) heap[b] = (uint64_t)b;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t top = heap[0];
        block[i] = (int)top;
        in_block[top]++;
        load[top] += words[i].tokens + !words[i].tokens;
        size_t at = 0;
        for (size_t child = 1; child < (size_t)blocks; child = 2 * at + 1) {
            if (child + 1 < (size_t)blocks &&
                (load[heap[child + 1]] < load[heap[child]] ||
                 (load[heap[child + 1]] == load[heap[child]] && heap[child + 1] < heap[child])))
                child++;
            if (load[heap[child]] > load[top] || (load[heap[child]] == load[top] && heap[child] > top)) break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = top;
    }
    free(load);
    free(heap);
    return TR_OK;
}

/* Places of the words, block by block and in each in the order given. */
static int place(struct tr_lda_layout *l, const struct word *words)
{
    int *block;
    TR_TRY(TR_NEW(&block, l->words));
    int status = spread(words, l->words, l->blocks, block, l->first + 1);
    for (int b = 0; b < l->blocks; b++) l->first[b + 1] += l->first[b];
    uint64_t *next = l->bytes; /* counts places for a while */
    for (int b = 0; b < l->blocks; b++) next[b] = l->first[b];
    for (uint64_t i = 0; status == TR_OK && i < l->words; i++) {
        uint64_t at = next[block[i]]++;
        l->word[at] = words[i].number;
        l->place[words[i].number] = at;
    }
    free(block);
    return status;
}

static void lay_rows(struct tr_lda_layout *l, const uint64_t *tokens)
{
    for (int b = 0; b < l->blocks; b++) {
        uint64_t at = 0;
        for (uint64_t p = l->first[b]; p < l->first[b + 1]; p++) {
            uint64_t t = tokens[l->word[p]];
            enum tr_lda_row kind = row_kind(t, l->topics);
            l->kind[p] = (uint8_t)kind;
            l->row[p] = at;
            at += row_bytes(kind, t, l->topics);
        }
        l->bytes[b] = (at + LINE - 1) / LINE * LINE;
    }
    /* Frequent words come first, so dense rows lie before lists, and all of them at multiples of a line. */
}

static int fill(struct tr_lda_layout *l, const uint64_t *tokens)
{
    struct word *words = NULL;
    TR_TRY(TR_NEW(&l->first, (size_t)l->blocks + 1));
    TR_TRY(TR_NEW(&l->bytes, (size_t)l->blocks));
    TR_TRY(TR_NEW(&l->word, l->words));
    TR_TRY(TR_NEW(&l->place, l->words));
    TR_TRY(TR_NEW(&l->row, l->words));
    TR_TRY(TR_NEW(&l->kind, l->words));
    TR_TRY(TR_NEW(&words, l->words));
    for (uint64_t w = 0; w < l->words; w++) words[w] = (struct word){tokens[w], w};
    qsort(words, l->words, sizeof *words, frequent_first);
    int status = place(l, words);
    free(words);
    if (status == TR_OK) lay_rows(l, tokens);
    return status;
}

int tr_lda_layout_open(const uint64_t *tokens, uint64_t words, uint32_t topics, int blocks,
                       struct tr_lda_layout *layout)
{
    if (topics < 1 || topics > TR_LDA_TOPICS)
        return tr_fail(TR_ERR_CONFIG, "model.topics: %" PRIu32 " topics: expected 1 to %d", topics,
                       TR_LDA_TOPICS);
    if (blocks < 1) return tr_fail(TR_ERR_INTERNAL, "words in %d blocks", blocks);
    for (uint64_t w = 0; w < words; w++)
        if (tokens[w] > INT32_MAX)
            return tr_fail(TR_ERR_DATA, "word %" PRIu64 ": %" PRIu64 " tokens: expected below 2^31", w + 1,
                           tokens[w]);
    struct tr_lda_layout l = {.topics = topics, .words = words, .blocks = blocks};
    int status = fill(&l, tokens);
    if (status == TR_OK) *layout = l;
    else tr_lda_layout_close(&l);
    return status;
}

void tr_lda_layout_close(struct tr_lda_layout *l)
{
    free(l->first);
    free(l->bytes);
    free(l->word);
    free(l->place);
    free(l->row);
    free(l->kind);
    *l = (struct tr_lda_layout){0};
}

/* ---- rows ---- */

static const void *row_of(const struct tr_lda_layout *l, const void *block, uint64_t place)
{
    return (const char *)block + l->row[place];
}

static uint64_t list_room(const struct tr_lda_layout *l, uint64_t place)
{
    uint64_t end = place + 1 < l->words && l->row[place + 1] > l->row[place] ? l->row[place + 1] : 0;
    if (!end) /* the last with a row in its block */
        for (int b = 0; b < l->blocks; b++)
            if (place >= l->first[b] && place < l->first[b + 1]) end = l->bytes[b];
    return (end - l->row[place]) / 4 - 1;
}

static int by_topic(const void *x, const void *y)
{
    const struct tr_lda_count *a = x, *b = y;
    return a->topic < b->topic ? -1 : a->topic > b->topic;
}

size_t tr_lda_row_pairs(const struct tr_lda_layout *l, const void *block, uint64_t place,
                        struct tr_lda_count *counts)
{
    const void *row = row_of(l, block, place);
    size_t n = 0;
    switch ((enum tr_lda_row)l->kind[place]) {
    case TR_LDA_EMPTY: break;
    case TR_LDA_LIST: {
        const uint32_t *list = row;
        for (; n < list[0]; n++) counts[n] = (struct tr_lda_count){list[1 + n] & 0xffff, list[1 + n] >> 16};
        break;
    }
    case TR_LDA_DENSE:
        for (uint32_t k = 0; k < l->topics; k++) {
            uint32_t c = ((const uint16_t *)row)[k];
            if (c) counts[n++] = (struct tr_lda_count){k, c};
        }
        break;
    case TR_LDA_WIDE:
        for (uint32_t k = 0; k < l->topics; k++) {
            uint32_t c = ((const uint32_t *)row)[k];
            if (c) counts[n++] = (struct tr_lda_count){k, c};
        }
        break;
    }
    return n;
}

size_t tr_lda_row_read(const struct tr_lda_layout *l, const void *block, uint64_t place,
                       struct tr_lda_count *counts)
{
    size_t n = tr_lda_row_pairs(l, block, place, counts);
    if (l->kind[place] == TR_LDA_LIST) qsort(counts, n, sizeof *counts, by_topic);
    return n;
}

static int below_zero(const struct tr_lda_layout *l, uint64_t place, uint32_t topic)
{
    return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ", topic %" PRIu32 ": a count outside its range",
                   l->word[place] + 1, topic);
}

static int no_room(const struct tr_lda_layout *l, uint64_t place)
{
    return tr_fail(TR_ERR_INTERNAL, "word %" PRIu64 ": more topics than it has tokens", l->word[place] + 1);
}

static int list_add(const struct tr_lda_layout *l, uint32_t *list, uint64_t place, uint32_t topic, int64_t by)
{
    uint32_t i = 0, n = list[0];
    while (i < n && (list[1 + i] & 0xffff) != topic) i++;
    int64_t count = (i < n ? (int64_t)(list[1 + i] >> 16) : 0) + by;
    if (count < 0 || count > WIDEST) return below_zero(l, place, topic);
    if (count) {
        if (i == n && n >= list_room(l, place)) return no_room(l, place);
        list[1 + i] = topic | (uint32_t)count << 16;
        if (i == n) list[0] = n + 1;
    } else if (i < n) {
        list[1 + i] = list[n];
        list[0] = n - 1;
    }
    return TR_OK;
}

int tr_lda_row_add(const struct tr_lda_layout *l, void *block, uint64_t place, uint32_t topic, int64_t by)
{
    void *row = (char *)block + l->row[place];
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    if (topic >= l->topics) return below_zero(l, place, topic);
    if (kind == TR_LDA_EMPTY) return by ? no_room(l, place) : TR_OK;
    if (kind == TR_LDA_LIST) return list_add(l, row, place, topic, by);
    int64_t count =
        (kind == TR_LDA_DENSE ? ((uint16_t *)row)[topic] : (int64_t)((uint32_t *)row)[topic]) + by;
    if (count < 0 || count > (kind == TR_LDA_DENSE ? WIDEST : (int64_t)UINT32_MAX))
        return below_zero(l, place, topic);
    if (kind == TR_LDA_DENSE) ((uint16_t *)row)[topic] = (uint16_t)count;
    else ((uint32_t *)row)[topic] = (uint32_t)count;
    return TR_OK;
}

int tr_lda_row_write(const struct tr_lda_layout *l, void *block, uint64_t place,
                     const struct tr_lda_count *counts, size_t n)
{
    void *row = (char *)block + l->row[place];
    enum tr_lda_row kind = (enum tr_lda_row)l->kind[place];
    if (kind == TR_LDA_DENSE || kind == TR_LDA_WIDE) memset(row, 0, row_bytes(kind, 1, l->topics));
    uint32_t *list = row, length = 0;
    uint64_t room = kind == TR_LDA_LIST ? list_room(l, place) : 0;
    for (size_t i = 0; i < n; i++) {
        struct tr_lda_count c = counts[i];
        if (!c.count) continue;
        if (c.topic >= l->topics || (kind != TR_LDA_WIDE && c.count > WIDEST))
            return below_zero(l, place, c.topic);
        if (kind == TR_LDA_DENSE) ((uint16_t *)row)[c.topic] = (uint16_t)c.count;
        else if (kind == TR_LDA_WIDE) ((uint32_t *)row)[c.topic] = c.count;
        else if (length >= room) return no_room(l, place);
        else list[1 + length++] = c.topic | c.count << 16;
    }
    if (kind == TR_LDA_LIST) list[0] = length;
    return TR_OK;
}

/* ---- blocks ---- */

void tr_lda_block_totals(const struct tr_lda_layout *l, int number, const void *block, int64_t *total)
{
    for (uint64_t p = l->first[number]; p < l->first[number + 1]; p++) {
        const void *row = row_of(l, block, p);
        switch ((enum tr_lda_row)l->kind[p]) {
        case TR_LDA_EMPTY: break;
        case TR_LDA_LIST:
            for (uint32_t i = 1; i <= ((const uint32_t *)row)[0]; i++)
                total[((const uint32_t *)row)[i] & 0xffff] += ((const uint32_t *)row)[i] >> 16;
            break;
        case TR_LDA_DENSE:
            for (uint32_t k = 0; k < l->topics; k++) total[k] += ((const uint16_t *)row)[k];
            break;
        case TR_LDA_WIDE:
            for (uint32_t k = 0; k < l->topics; k++) total[k] += ((const uint32_t *)row)[k];
            break;
        }
    }
}
