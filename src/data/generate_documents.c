/* Bags of words, and the words. */
#include "data/generate.h"

#include <math.h>
#include <stdlib.h>

#include "data/draw.h"

#define COUNT_BYTES 48 /* "4294967294 4294967294 18446744073709551615\n" and some to spare */

struct documents {
    struct tr_generate_docword options;
    struct tr_popular popular;
    struct tr_lines lines;
    uint64_t topic_seed;
    double slot_scale;      /* 1 / log(c / (1 + c)) where a topic has c slots in the mean */
    uint32_t *topic, *word; /* of the tokens of the document in work */
    size_t topic_room, word_room;
};

/* A topic's words are distributed as a Dirichlet process about Zipf's law: slots, each with a word drawn by
 * that law once for all, and used in proportion to c/(1+c) to the power of the slot, which is the mean of the
 * process's broken sticks. With many words that is what Dirichlet's distribution with parameters of sum c is,
 * and nothing has to be stored. */
static uint32_t draw_word(const struct documents *g, uint32_t topic, struct tr_rng *rng)
{
    double slot = floor(log(1 - tr_rng_uniform(rng)) * g->slot_scale);
    uint64_t hash = tr_mix(tr_mix(g->topic_seed ^ topic) + (uint64_t)slot);
    return tr_popular_spread(&g->popular, tr_popular_rank(&g->popular, (double)(hash >> 11) * 0x1p-53));
}

/* The topic of token i, by Pólya's urn: a new one in proportion to alpha × topics, or that of a token before. */
static uint32_t draw_topic(const struct documents *g, size_t i, struct tr_rng *rng)
{
    double fresh = g->options.alpha * g->options.topics;
    if (i == 0 || tr_rng_uniform(rng) * (fresh + (double)i) < fresh)
        return (uint32_t)tr_rng_below(rng, g->options.topics);
    return g->topic[tr_rng_below(rng, i)];
}

/* ---- documents ---- */

static int compare_words(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int write_counts(struct documents *g, uint64_t document, size_t n)
{
    qsort(g->word, n, sizeof *g->word, compare_words);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && g->word[j] == g->word[i]; j++)
            ;
        char *p = tr_print_whole(g->lines.at, document + 1);
        *p++ = ' ';
        p = tr_print_whole(p, (uint64_t)g->word[i] + 1);
        *p++ = ' ';
        p = tr_print_whole(p, j - i);
        *p++ = '\n';
        TR_TRY(tr_lines_add(&g->lines, p));
    }
    return TR_OK;
}

static int write_document(struct documents *g, uint64_t document, size_t n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, g->options.seed, document, TR_MADE_TOKENS);
    TR_TRY(TR_GROW(&g->topic, &g->topic_room, n));
    TR_TRY(TR_GROW(&g->word, &g->word_room, n));
    for (size_t i = 0; i < n; i++) {
        g->topic[i] = draw_topic(g, i, &rng);
        g->word[i] = draw_word(g, g->topic[i], &rng);
    }
    return n > 0 ? write_counts(g, document, n) : TR_OK;
}

static int write_documents(struct documents *g, uint64_t begin, uint64_t end)
{
    struct tr_split share;
    tr_split_begin(&share, g->options.documents, g->options.tokens, g->options.seed, begin);
    for (uint64_t d = begin; d < end; d++) TR_TRY(write_document(g, d, (size_t)tr_split_next(&share)));
    return TR_OK;
}

static int check_docword(const struct tr_generate_docword *o)
{
    return TR_CHECK_RANGES({"documents", o->documents, 1, INFINITY}, {"words", o->words, 1, INFINITY},
                           {"tokens", (double)o->tokens, 1, INFINITY}, {"topics", o->topics, 1, INFINITY},
                           {"alpha", o->alpha, 0, 1e6}, {"beta", o->beta, 1e-9, 1e6},
                           {"power", o->power, 0, 10});
}

int tr_generate_docword(const struct tr_generate_docword *options, uint64_t begin, uint64_t end, FILE *out)
{
    struct documents g = {.options = *options, .topic_seed = tr_mix(options->seed ^ ((uint64_t)1 << 62))};
    TR_TRY(check_docword(options));
    double slots = options->beta * options->words;
    g.slot_scale = -1 / log1p(1 / slots);
    tr_popular_init(&g.popular, options->words, options->power);
    int status = tr_lines_open(&g.lines, COUNT_BYTES, out);
    if (status == TR_OK) status = write_documents(&g, begin, end);
    status = tr_lines_close(&g.lines, status);
    free(g.topic);
    free(g.word);
    return status;
}

/* ---- vocabulary ---- */

/* The number in syllables, two at least: different numbers are different words. */
static char *print_word(char *p, uint32_t number)
{
    static const char consonants[] = "bdfghjklmnprstvwyzcx", vowels[] = "aeiou";
    uint32_t syllables[8];
    int n = 0;
    do {
        syllables[n++] = number % 100;
        number /= 100;
    } while (number > 0 || n < 2);
    while (n-- > 0) {
        *p++ = consonants[syllables[n] / 5];
        *p++ = vowels[syllables[n] % 5];
    }
    *p++ = '\n';
    return p;
}

int tr_generate_vocabulary(uint32_t begin, uint32_t end, FILE *out)
{
    struct tr_lines lines;
    TR_TRY(tr_lines_open(&lines, COUNT_BYTES, out));
    int status = TR_OK;
    for (uint32_t w = begin; w < end && status == TR_OK; w++)
        status = tr_lines_add(&lines, print_word(lines.at, w));
    return tr_lines_close(&lines, status);
}
