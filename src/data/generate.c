#include "data/generate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Streams of random numbers: each purpose has its own, which is a part of the seed. */
enum made_stream {
    MADE_ROWS = 1,
    MADE_PILOT,
    MADE_RATINGS,
    MADE_TOKENS,
    MADE_DENSE,
    MADE_EVENTS,
    MADE_CLAIMS
};

/* ---- options ---- */

/* An option and its limits. */
struct range {
    const char *key;
    double value, least, most;
};

static int check_ranges(const struct range *range, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct range *r = &range[i];
        if (r->value >= r->least && r->value <= r->most) continue;
        if (isinf(r->most))
            return tr_fail(TR_ERR_CONFIG, "%s: %.10g, expected at least %g", r->key, r->value, r->least);
        return tr_fail(TR_ERR_CONFIG, "%s: %.10g, expected %g to %.10g", r->key, r->value, r->least, r->most);
    }
    return TR_OK;
}

#define CHECK_RANGES(...)                                                                                    \
    check_ranges((const struct range[]){__VA_ARGS__},                                                        \
                 sizeof((const struct range[]){__VA_ARGS__}) / sizeof(struct range))

/* ---- popularity: of n things, that of rank k - 1 is drawn in proportion to k^-power ---- */

struct popular {
    uint32_t n;
    double exponent, span; /* constants of the inverse distribution function in popular_rank() */
    unsigned bits;         /* number of bits of the permutation in popular_spread(): 2^bits >= n */
};

static void popular_init(struct popular *p, uint32_t n, double power)
{
    double end = (double)n + 1;
    *p = (struct popular){.n = n, .bits = 1};
    p->exponent = fabs(1 - power) < 1e-9 ? 0 : 1 - power;
    p->span = p->exponent == 0 ? log(end) : pow(end, p->exponent) - 1;
    while (((uint64_t)1 << p->bits) < n) p->bits++;
}

/* Draws a rank, 0 .. n - 1. u: a random number in [0, 1), to which the inverse of the power law on [1, n + 1) is applied. */
static uint32_t popular_rank(const struct popular *p, double u)
{
    double x = p->exponent == 0 ? exp(u * p->span) : pow(1 + u * p->span, 1 / p->exponent);
    uint32_t last = p->n - 1;
    return x - 1 < last ? (uint32_t)(x - 1) : last;
}

/* Maps ranks to the indices 0 .. n - 1 of things, so that popular things are not neighbours: applies a fixed permutation of 0 ..
 * 2^bits - 1 until the result is below n. */
static uint32_t popular_spread(const struct popular *p, uint32_t rank)
{
    uint64_t x = rank, mask = ((uint64_t)1 << p->bits) - 1;
    unsigned half = p->bits / 2 + 1;
    do {
        x = (x * 0x9e3779b97f4a7c15u + 0x7f4a7c15u) & mask;
        x ^= x >> half;
        x = (x * 0xbf58476d1ce4e5b9u) & mask;
        x ^= x >> half;
        x = (x * 0x94d049bb133111ebu) & mask;
        x ^= x >> half;
    } while (x >= p->n);
    return (uint32_t)x;
}

/* ---- distinct ranks within a row ---- */

/* A set of the ranks of the current row, as a hash table that is never cleared: entries of other rows count as free. */
struct distinct {
    struct entry_of_row {
        uint64_t row;
        uint32_t rank;
    } * taken;
    size_t slots;
    uint64_t row; /* number of the current row, from 1 */
};

/* Begins a row: the set is empty, and has room for `most` ranks. */
static int distinct_begin(struct distinct *d, size_t most)
{
    size_t slots = d->slots ? d->slots : 16;
    d->row++;
    while (slots < 2 * most) slots *= 2;
    if (slots == d->slots) return TR_OK;
    free(d->taken);
    d->taken = NULL;
    d->slots = slots;
    return TR_NEW(&d->taken, slots);
}

/* Adds a rank to the set. Returns false if the set has it already. */
static bool distinct_add(struct distinct *d, uint32_t rank)
{
    size_t i = (size_t)tr_mix(rank) & (d->slots - 1);
    for (; d->taken[i].row == d->row; i = (i + 1) & (d->slots - 1))
        if (d->taken[i].rank == rank) return false;
    d->taken[i] = (struct entry_of_row){d->row, rank};
    return true;
}

/* Draws a rank that this row does not have yet; after eight attempts takes the next rank that is free. */
static uint32_t distinct_draw(struct distinct *d, const struct popular *p, struct tr_rng *rng)
{
    uint32_t rank = 0;
    for (int i = 0; i < 8; i++)
        if (distinct_add(d, rank = popular_rank(p, tr_rng_uniform(rng)))) return rank;
    do rank = rank + 1 < p->n ? rank + 1 : 0;
    while (!distinct_add(d, rank));
    return rank;
}

/* ---- uneven quantities: n owners, each with 0.4 to 4 times the mean ---- */

enum { SPLIT_MOST = 4 };

struct split {
    uint64_t n, whole, seed, next; /* whole: the quantity of all n owners; next: the next owner */
    double sum, total;             /* sum of the weights of the owners before `next`; of all owners */
};

/* Returns the weight of an owner, a random number from 1 to 10 with mean 2.56. */
static double split_weight(const struct split *s, uint64_t owner)
{
    return 10 / (1 + 9 * ((double)(tr_mix(s->seed ^ owner) >> 11) * 0x1p-53));
}

/* Sets the next owner to `begin`. Weights are summed in the same order for any `begin`, so an owner always gets the same
 * quantity. */
static void split_begin(struct split *s, uint64_t n, uint64_t whole, uint64_t seed, uint64_t begin)
{
    *s = (struct split){.n = n, .whole = whole, .seed = tr_mix(seed), .next = begin};
    for (uint64_t i = 0; i < n; i++) {
        if (i == begin) s->sum = s->total;
        s->total += split_weight(s, i);
    }
}

static uint64_t split_before(const struct split *s)
{
    return (uint64_t)(s->sum / s->total * (double)s->whole);
}

/* Returns the quantity of the next owner. The quantities of all n owners add up to `whole`. */
static uint64_t split_next(struct split *s)
{
    uint64_t low = split_before(s);
    s->sum += split_weight(s, s->next++);
    return split_before(s) - low;
}

/* ---- hidden numbers: functions of their owner, never stored ---- */

/* Returns a uniform number with mean 0 and variance 1, from the 16 bits number `piece` (0 to 3) of a hash. */
static inline double hidden_piece(uint64_t hash, unsigned piece)
{
    return ((double)(hash >> (16 * piece) & 0xffff) - 32767.5) * (3.4641016151377544 / 65536);
}

static inline double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- text ---- */

/* The caller writes a line to `text`, and then lines_add() writes it to the file. */
struct lines {
    FILE *out;
    char *text;
};

static int lines_failed(void)
{
    return tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno));
}

static int lines_open(struct lines *l, size_t longest, FILE *out)
{
    *l = (struct lines){.out = out};
    return TR_NEW(&l->text, longest);
}

/* Writes the line text .. end - 1 to the file. */
static inline int lines_add(const struct lines *l, const char *end)
{
    size_t n = (size_t)(end - l->text);
    return fwrite(l->text, 1, n, l->out) == n ? TR_OK : lines_failed();
}

/* Flushes the file unless status is an error, and frees the memory. */
static int lines_close(struct lines *l, int status)
{
    if (status == TR_OK && (fflush(l->out) != 0 || ferror(l->out))) status = lines_failed();
    free(l->text);
    return status;
}

static inline char *print_whole(char *p, uint64_t number)
{
    char digits[20];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n > 0) *p++ = digits[--n];
    return p;
}

/* Prints number / 10^decimals without trailing zeros. */
static char *print_decimal(char *p, int64_t number, int decimals)
{
    uint64_t unit = 1, size = number < 0 ? -(uint64_t)number : (uint64_t)number;
    for (int i = 0; i < decimals; i++) unit *= 10;
    if (number < 0) *p++ = '-';
    p = print_whole(p, size / unit);
    uint64_t rest = size % unit;
    if (rest == 0) return p;
    *p++ = '.';
    for (; rest > 0; rest = rest * 10 % unit) *p++ = (char)('0' + rest * 10 / unit);
    return p;
}

/* Compares two numbers, or two structs by their first member. */
static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* ---- clicks ---- */

#define PILOT_ROWS 2000  /* number of rows from which the bias is found */
#define POSITIVES  0.3   /* fraction of positive labels before noise */
#define SIGNAL     3.0   /* standard deviation of the margin, roughly */
#define VALUE_UNIT 10000 /* real values are whole multiples of 1/VALUE_UNIT */
#define PAIR_BYTES 19    /* " 4294967294:0.1234" and one to spare */

struct entry {
    uint32_t feature; /* index of the feature, from 1 to options.features */
    uint32_t value;   /* value of the feature, in units of 1/VALUE_UNIT */
};

struct ctr {
    struct tr_generate_options options;
    struct popular popular;
    struct distinct distinct;
    struct lines lines;
    struct entry *entries; /* the non-zeros of the current row */
};

/* Draws the features of a row and their values, sorted. Small values are frequent, as in term frequencies. */
static int ctr_draw_entries(struct ctr *g, struct tr_rng *rng)
{
    const struct tr_generate_options *o = &g->options;
    size_t n = o->nonzeros;
    TR_TRY(distinct_begin(&g->distinct, n));
    for (size_t i = 0; i < n; i++) {
        uint32_t rank = distinct_draw(&g->distinct, &g->popular, rng);
        uint32_t feature = 1 + popular_spread(&g->popular, rank), value = VALUE_UNIT;
        if (o->values == TR_VALUES_UNIT) value = (uint32_t)lround(VALUE_UNIT / sqrt(o->nonzeros));
        if (o->values == TR_VALUES_REAL) {
            double u = tr_rng_uniform(rng);
            value = 1 + (uint32_t)(u * u * VALUE_UNIT);
        }
        g->entries[i] = (struct entry){feature, value};
    }
    if (n > 64) {
        qsort(g->entries, n, sizeof *g->entries, compare_u32);
        return TR_OK;
    }
    for (size_t i = 1; i < n; i++) {
        struct entry entry = g->entries[i];
        size_t j = i;
        for (; j > 0 && g->entries[j - 1].feature > entry.feature; j--) g->entries[j] = g->entries[j - 1];
        g->entries[j] = entry;
    }
    return TR_OK;
}

/* Returns the margin of the current row. Hidden weights come from a hash: uniform, with mean 0 and variance 1. */
static double ctr_margin(const struct ctr *g)
{
    double sum = 0;
    uint64_t weight_seed = tr_mix(g->options.seed);
    uint32_t n = g->options.nonzeros;
    bool real = g->options.values == TR_VALUES_REAL; /* otherwise the margin does not depend on the values */
    for (uint32_t i = 0; i < n; i++) {
        double u = (double)(tr_mix(weight_seed ^ g->entries[i].feature) >> 11) * 0x1p-53;
        sum += (2 * u - 1) * 1.7320508075688772 * (real ? (double)g->entries[i].value / VALUE_UNIT : 1);
    }
    return SIGNAL * sum / sqrt(n);
}

/* Finds the bias with which the mean probability of a positive label, over PILOT_ROWS rows, is POSITIVES. */
static int ctr_find_bias(struct ctr *g, double *bias)
{
    TR_FREED double *margins = NULL;
    double low = -1000, high = 1000;
    TR_TRY(TR_NEW(&margins, PILOT_ROWS));
    for (size_t i = 0; i < PILOT_ROWS; i++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, g->options.seed, i, MADE_PILOT);
        TR_TRY(ctr_draw_entries(g, &rng));
        margins[i] = ctr_margin(g);
    }
    for (int step = 0; step < 50; step++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t i = 0; i < PILOT_ROWS; i++) sum += logistic(margins[i] + middle);
        if (sum < POSITIVES * (double)PILOT_ROWS) low = middle;
        else high = middle;
    }
    *bias = low;
    return TR_OK;
}

int tr_generate_ctr(const struct tr_generate_options *o, FILE *out)
{
    struct ctr g = {.options = *o};
    double bias = 0;
    TR_TRY(CHECK_RANGES({"features", o->features, 1, UINT32_MAX - 1}, {"power", o->power, 0, 10},
                        {"noise", o->noise, 0, 1}));
    if (o->nonzeros == 0 || o->nonzeros > o->features)
        return tr_fail(TR_ERR_CONFIG, "nonzeros: %u, expected 1 to %u, the number of features",
                       (unsigned)o->nonzeros, (unsigned)o->features);
    popular_init(&g.popular, o->features, o->power);
    int status = TR_NEW(&g.entries, o->nonzeros);
    if (status == TR_OK) status = lines_open(&g.lines, 4 + (size_t)o->nonzeros * PAIR_BYTES, out);
    if (status == TR_OK) status = ctr_find_bias(&g, &bias);
    for (uint64_t row = 0; row < o->rows && status == TR_OK; row++) {
        struct tr_rng rng;
        tr_rng_seed(&rng, o->seed, o->first_row + row, MADE_ROWS);
        if ((status = ctr_draw_entries(&g, &rng)) != TR_OK) break;
        bool positive = tr_rng_uniform(&rng) < logistic(ctr_margin(&g) + bias);
        bool flipped = tr_rng_uniform(&rng) < o->noise;
        char *p = g.lines.text;
        memcpy(p, positive != flipped ? "+1" : "-1", 2);
        p += 2;
        for (uint32_t i = 0; i < o->nonzeros; i++) {
            uint32_t value = g.entries[i].value;
            *p++ = ' ';
            p = print_whole(p, g.entries[i].feature);
            *p++ = ':';
            if (value == VALUE_UNIT) {
                *p++ = '1';
                continue;
            }
            memcpy(p, "0.", 2); /* with trailing zeros, so that files equal those of older versions */
            for (int k = 5; k >= 2; k--, value /= 10) p[k] = (char)('0' + value % 10);
            p += 6;
        }
        *p++ = '\n';
        status = lines_add(&g.lines, p);
    }
    status = lines_close(&g.lines, status);
    free(g.distinct.taken);
    free(g.entries);
    return status;
}

/* ---- ratings ---- */

/* The parts of a rating: the mean, and the standard deviations of the other parts, in stars. */
#define MEAN      3.6
#define USER_BIAS 0.4
#define ITEM_BIAS 0.5
#define PRODUCT   0.6

#define RATING_BYTES 32 /* "4294967294\t4294967294\t3.25\n" and some to spare */
#define RANK_MOST    4096

struct raters {
    struct tr_generate_ratings options;
    struct popular popular;
    struct distinct distinct;
    struct lines lines;
    double *factors; /* hidden numbers of the current user: options.rank factors, then the bias */
    uint64_t item_seed, user_seed;
};

/* Returns the hash with the hidden number j of a user or an item. One hash has four numbers, see hidden_piece(). */
static uint64_t rating_hash(uint64_t seed, uint32_t who, uint32_t j)
{
    return tr_mix(tr_mix(seed ^ who) + j / 4);
}

/* Returns the rating of the current user for an item, without noise. */
static double rating_mean(const struct raters *g, uint32_t item)
{
    uint32_t rank = g->options.rank;
    double sum = 0;
    uint64_t hash = 0;
    for (uint32_t j = 0; j < rank; j++) {
        if (j % 4 == 0) hash = rating_hash(g->item_seed, item, j);
        sum += g->factors[j] * hidden_piece(hash, j % 4);
    }
    double bias = hidden_piece(rating_hash(g->item_seed, item, rank), rank % 4);
    return MEAN + USER_BIAS * g->factors[rank] + ITEM_BIAS * bias + PRODUCT * sum / sqrt(rank);
}

/* Writes the n ratings of a user. */
static int rating_write_user(struct raters *g, uint32_t user, uint64_t n)
{
    const struct tr_generate_ratings *o = &g->options;
    struct tr_rng rng;
    tr_rng_seed(&rng, o->seed, user, MADE_RATINGS);
    TR_TRY(distinct_begin(&g->distinct, (size_t)n));
    for (uint32_t j = 0; j <= o->rank; j++)
        g->factors[j] = hidden_piece(rating_hash(g->user_seed, user, j), j % 4);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t item = popular_spread(&g->popular, distinct_draw(&g->distinct, &g->popular, &rng));
        double noise = o->noise * tr_rng_normal(&rng);
        enum tr_rating_part part = tr_rng_uniform(&rng) < o->test ? TR_RATING_TEST : TR_RATING_TRAIN;
        if (o->part != TR_RATING_ALL && o->part != part) continue;
        double rating = fmin(fmax(rating_mean(g, item) + noise, 1), 5);
        char *p = print_whole(g->lines.text, (uint64_t)user + 1);
        *p++ = '\t';
        p = print_whole(p, (uint64_t)item + 1);
        *p++ = '\t';
        p = o->values == TR_RATING_WHOLE ? print_whole(p, (uint64_t)lround(rating))
                                         : print_decimal(p, lround(rating * 100), 2);
        *p++ = '\n';
        TR_TRY(lines_add(&g->lines, p));
    }
    return TR_OK;
}

int tr_generate_ratings(const struct tr_generate_ratings *o, uint64_t begin, uint64_t end, FILE *out)
{
    struct raters g = {.options = *o};
    struct split share;
    double most = floor((double)o->users * ((double)o->items / SPLIT_MOST));
    TR_TRY(CHECK_RANGES({"users", o->users, 1, INFINITY}, {"items", o->items, 1, INFINITY},
                        {"ratings", (double)o->ratings, 1, INFINITY}, {"rank", o->rank, 1, RANK_MOST},
                        {"power", o->power, 0, 10}, {"noise", o->noise, 0, 100},
                        {"test", o->test, 0, 0.999999}));
    if ((double)o->ratings > most)
        return tr_fail(TR_ERR_CONFIG, "ratings: %llu, expected at most %.0f, a quarter of users times items",
                       (unsigned long long)o->ratings, most);
    g.item_seed = tr_mix(o->seed ^ ((uint64_t)1 << 62));
    g.user_seed = tr_mix(o->seed ^ ((uint64_t)1 << 63));
    popular_init(&g.popular, o->items, o->power);
    int status = TR_NEW(&g.factors, (size_t)o->rank + 1);
    if (status == TR_OK) status = lines_open(&g.lines, RATING_BYTES, out);
    split_begin(&share, o->users, o->ratings, o->seed, begin);
    for (uint64_t user = begin; user < end && status == TR_OK; user++)
        status = rating_write_user(&g, (uint32_t)user, tr_min_size(split_next(&share), o->items));
    status = lines_close(&g.lines, status);
    free(g.distinct.taken);
    free(g.factors);
    return status;
}

/* ---- documents ---- */

#define COUNT_BYTES 48 /* "4294967294 4294967294 18446744073709551615\n" and some to spare */

struct documents {
    struct tr_generate_docword options;
    struct popular popular;
    struct lines lines;
    uint64_t topic_seed;
    double slot_scale;      /* 1 / log(c / (1 + c)), see document_write() */
    uint32_t *topic, *word; /* topic and word of each token of the current document */
    size_t topic_capacity, word_capacity;
};

/* Writes a document of n tokens. The topic of a token is drawn by Pólya's urn: a random topic with a probability in proportion to
 * alpha × topics, otherwise the topic of a random earlier token. The words of a topic are distributed as a Dirichlet process around
 * Zipf's law. A topic has slots 0, 1, ...; each has one word, drawn by Zipf's law. Slot i is used in proportion to (c/(1+c))^i, the
 * mean of the stick-breaking construction, with c = beta × words. With many words this equals a Dirichlet distribution whose
 * parameters add up to c, and nothing has to be stored. */
static int document_write(struct documents *g, uint64_t document, size_t n)
{
    const struct tr_generate_docword *o = &g->options;
    double fresh = o->alpha * o->topics;
    struct tr_rng rng;
    tr_rng_seed(&rng, o->seed, document, MADE_TOKENS);
    TR_TRY(TR_GROW(&g->topic, &g->topic_capacity, n));
    TR_TRY(TR_GROW(&g->word, &g->word_capacity, n));
    for (size_t i = 0; i < n; i++) {
        bool is_new = i == 0 || tr_rng_uniform(&rng) * (fresh + (double)i) < fresh;
        g->topic[i] = is_new ? (uint32_t)tr_rng_below(&rng, o->topics) : g->topic[tr_rng_below(&rng, i)];
        double slot = floor(log(1 - tr_rng_uniform(&rng)) * g->slot_scale);
        uint64_t hash = tr_mix(tr_mix(g->topic_seed ^ g->topic[i]) + (uint64_t)slot);
        g->word[i] = popular_spread(&g->popular, popular_rank(&g->popular, (double)(hash >> 11) * 0x1p-53));
    }
    if (n > 0) qsort(g->word, n, sizeof *g->word, compare_u32);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && g->word[j] == g->word[i]; j++)
            ;
        char *p = print_whole(g->lines.text, document + 1);
        *p++ = ' ';
        p = print_whole(p, (uint64_t)g->word[i] + 1);
        *p++ = ' ';
        p = print_whole(p, j - i);
        *p++ = '\n';
        TR_TRY(lines_add(&g->lines, p));
    }
    return TR_OK;
}

int tr_generate_docword(const struct tr_generate_docword *o, uint64_t begin, uint64_t end, FILE *out)
{
    struct documents g = {.options = *o, .topic_seed = tr_mix(o->seed ^ ((uint64_t)1 << 62))};
    struct split share;
    TR_TRY(CHECK_RANGES({"documents", o->documents, 1, INFINITY}, {"words", o->words, 1, INFINITY},
                        {"tokens", (double)o->tokens, 1, INFINITY}, {"topics", o->topics, 1, INFINITY},
                        {"alpha", o->alpha, 0, 1e6}, {"beta", o->beta, 1e-9, 1e6},
                        {"power", o->power, 0, 10}));
    double slots = o->beta * o->words;
    g.slot_scale = -1 / log1p(1 / slots);
    popular_init(&g.popular, o->words, o->power);
    int status = lines_open(&g.lines, COUNT_BYTES, out);
    split_begin(&share, o->documents, o->tokens, o->seed, begin);
    for (uint64_t d = begin; d < end && status == TR_OK; d++)
        status = document_write(&g, d, (size_t)split_next(&share));
    status = lines_close(&g.lines, status);
    free(g.topic);
    free(g.word);
    return status;
}

/* The syllables of a word are the digits of its number to the base 100, at least two: so all words are different. */
int tr_generate_vocabulary(uint32_t begin, uint32_t end, FILE *out)
{
    static const char consonants[] = "bdfghjklmnprstvwyzcx", vowels[] = "aeiou";
    struct lines lines;
    TR_TRY(lines_open(&lines, COUNT_BYTES, out));
    int status = TR_OK;
    for (uint32_t w = begin; w < end && status == TR_OK; w++) {
        uint32_t syllables[8], number = w;
        int n = 0;
        char *p = lines.text;
        do {
            syllables[n++] = number % 100;
            number /= 100;
        } while (number > 0 || n < 2);
        while (n-- > 0) {
            *p++ = consonants[syllables[n] / 5];
            *p++ = vowels[syllables[n] % 5];
        }
        *p++ = '\n';
        status = lines_add(&lines, p);
    }
    return lines_close(&lines, status);
}

/* ---- dense rows: clusters and events ---- */

#define FIELD_BYTES 40 /* a column's number, a colon, a value up to 1e15, and some to spare */

static char *dense_print_label(char *p, uint64_t cluster, char separator)
{
    p = print_whole(p, cluster);
    *p++ = separator;
    return p;
}

int tr_generate_dense(const struct tr_generate_dense *o, FILE *out)
{
    const uint64_t centre_seed = tr_mix(o->seed ^ ((uint64_t)1 << 62));
    const bool libsvm = o->format == TR_DENSE_LIBSVM;
    struct lines lines;
    TR_TRY(CHECK_RANGES({"rows", (double)o->rows, 1, INFINITY}, {"columns", o->columns, 1, INFINITY},
                        {"clusters", o->clusters, 1, INFINITY}, {"spread", o->spread, 0, 1e12},
                        {"noise", o->noise, 0, 1e12}));
    if (libsvm && o->label != TR_DENSE_NONE)
        return tr_fail(TR_ERR_CONFIG, "label: LIBSVM text always begins with it, "
                                      "expected with format=csv only");
    TR_TRY(lines_open(&lines, ((size_t)o->columns + 2) * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t row = 0; row < o->rows && status == TR_OK; row++) {
        struct tr_rng rng;
        char *p = lines.text;
        tr_rng_seed(&rng, o->seed, o->first_row + row, MADE_DENSE);
        uint64_t cluster = tr_rng_below(&rng, o->clusters), base = tr_mix(centre_seed ^ cluster), hash = 0;
        if (libsvm || o->label == TR_DENSE_FIRST) p = dense_print_label(p, cluster, libsvm ? ' ' : ',');
        for (uint32_t j = 0; j < o->columns; j++) {
            if (j % 4 == 0) hash = tr_mix(base + j / 4);
            double value = o->spread * hidden_piece(hash, j % 4) + o->noise * tr_rng_normal(&rng);
            if (libsvm) p = dense_print_label(p, (uint64_t)j + 1, ':');
            p = print_decimal(p, llround(value * 1e4), 4);
            *p++ = libsvm ? ' ' : ',';
        }
        if (!libsvm && o->label == TR_DENSE_LAST) p = dense_print_label(p, cluster, ',');
        p[-1] = '\n';
        status = lines_add(&lines, p);
    }
    return lines_close(&lines, status);
}

int tr_generate_events(const struct tr_generate_table *o, FILE *out)
{
    enum { NUMBERS = 28, TAILS = 8 };
    struct lines lines;
    TR_TRY(CHECK_RANGES({"rows", (double)o->rows, 1, INFINITY}));
    TR_TRY(lines_open(&lines, (NUMBERS + 1) * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t row = 0; row < o->rows && status == TR_OK; row++) {
        struct tr_rng rng;
        double x[NUMBERS];
        char *p = lines.text;
        tr_rng_seed(&rng, o->seed, o->first_row + row, MADE_EVENTS);
        for (int j = 0; j < NUMBERS; j++) {
            int tail = j - (NUMBERS - TAILS);
            x[j] = tr_rng_normal(&rng);
            if (tail >= 0) x[j] = fabs(x[j]) * exp(0.3 * x[tail]);
            p = print_decimal(p, llround(x[j] * 1e4), 4);
            *p++ = ',';
        }
        double step = x[20] > 1 ? x[3] : 0;
        double margin = x[0] * x[1] + sin(2 * x[2]) + 0.7 * step - 0.5 * x[21] + 0.4 * x[4] * x[4] +
                        0.3 * x[5] * x[6] * x[7] - 0.2;
        p = print_whole(p, tr_rng_uniform(&rng) < logistic(margin));
        *p++ = '\n';
        status = lines_add(&lines, p);
    }
    return lines_close(&lines, status);
}

/* ---- claims ---- */

const char tr_generate_claims_header[] =
    "age,region,car,power,exposure,log_exposure,claims,severity,premium\n";

int tr_generate_claims(const struct tr_generate_table *o, FILE *out)
{
    enum { FIELDS = 9, POWERS = 9 };
    static const char *const ages[] = {"adult", "young", "senior"}, *const regions[] = {"country", "city"},
                             *const cars[] = {"new", "old"};
    static const double of_age[2][3] = {{0, 0.8, 0.4}, {0, 0.5, 0.3}};
    struct lines lines;
    TR_TRY(CHECK_RANGES({"rows", (double)o->rows, 1, INFINITY}));
    TR_TRY(lines_open(&lines, FIELDS * FIELD_BYTES, out));
    int status = TR_OK;
    for (uint64_t row = 0; row < o->rows && status == TR_OK; row++) {
        struct tr_rng rng;
        char *p = lines.text;
        tr_rng_seed(&rng, o->seed, o->first_row + row, MADE_CLAIMS);
        uint64_t age = tr_rng_below(&rng, 3), region = tr_rng_below(&rng, 2), car = tr_rng_below(&rng, 2),
                 power = 40 + 20 * tr_rng_below(&rng, POWERS), days = 1 + tr_rng_below(&rng, 365), claims = 0;
        double exposure = (double)llround((double)days / 365 * 1e4) / 1e4, kilowatts = 0.01 * (double)power,
               city = (double)region, old = (double)car, amount = 0;
        double frequency = exp(-0.7 + of_age[0][age] + 0.7 * city - 0.5 * old + 0.5 * kilowatts),
               mean = exp(7 + of_age[1][age] + 0.3 * city - 0.6 * old + 0.4 * kilowatts);
        /* the claims are the events of a Poisson process before the end of the exposure */
        for (double time = 0; (time -= log(1 - tr_rng_uniform(&rng)) / frequency) < exposure; claims++)
            amount -= mean / 2 * log((1 - tr_rng_uniform(&rng)) * (1 - tr_rng_uniform(&rng)));
        p += sprintf(p, "%s,%s,%s,", ages[age], regions[region], cars[car]);
        p = print_decimal(p, (int64_t)power, 2);
        *p++ = ',';
        p = print_decimal(p, llround(exposure * 1e4), 4);
        *p++ = ',';
        p = print_decimal(p, llround(log(exposure) * 1e6), 6);
        *p++ = ',';
        p = print_whole(p, claims);
        *p++ = ',';
        if (claims > 0) p = print_decimal(p, llround(amount / (double)claims * 100), 2);
        *p++ = ',';
        p = print_decimal(p, llround(amount / exposure * 100), 2);
        *p++ = '\n';
        status = lines_add(&lines, p);
    }
    return lines_close(&lines, status);
}
