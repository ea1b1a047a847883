/* Ratings of items by users. */
#include "data/generate.h"

#include <math.h>
#include <stdlib.h>

#include "data/draw.h"

/* The parts of a rating, as standard deviations in stars. */
#define MEAN      3.6
#define USER_BIAS 0.4
#define ITEM_BIAS 0.5
#define PRODUCT   0.6

#define RATING_BYTES 32 /* "4294967294\t4294967294\t3.25\n" and some to spare */
#define RANK_MOST    4096

struct raters {
    struct tr_generate_ratings options;
    struct tr_popular popular;
    struct tr_distinct distinct;
    struct tr_lines lines;
    double *factors; /* of the user in work: rank of them, then the bias */
    uint64_t item_seed, user_seed;
};

/* Hidden number j of a user or an item. Four come from one hash. */
static uint64_t hidden_hash(uint64_t seed, uint32_t who, uint32_t j)
{
    return tr_mix(tr_mix(seed ^ who) + j / 4);
}

static void begin_user(struct raters *g, uint32_t user)
{
    for (uint32_t j = 0; j <= g->options.rank; j++)
        g->factors[j] = tr_hidden_piece(hidden_hash(g->user_seed, user, j), j % 4);
}

/* What the user would think of the item without noise. */
static double opinion(const struct raters *g, uint32_t item)
{
    uint32_t rank = g->options.rank;
    double sum = 0;
    uint64_t hash = 0;
    for (uint32_t j = 0; j < rank; j++) {
        if (j % 4 == 0) hash = hidden_hash(g->item_seed, item, j);
        sum += g->factors[j] * tr_hidden_piece(hash, j % 4);
    }
    double bias = tr_hidden_piece(hidden_hash(g->item_seed, item, rank), rank % 4);
    return MEAN + USER_BIAS * g->factors[rank] + ITEM_BIAS * bias + PRODUCT * sum / sqrt(rank);
}

static int write_rating(struct raters *g, uint32_t user, uint32_t item, double rating)
{
    bool whole = g->options.values == TR_RATING_WHOLE;
    double cut = fmin(fmax(rating, 1), 5);
    char *p = tr_print_whole(g->lines.at, (uint64_t)user + 1);
    *p++ = '\t';
    p = tr_print_whole(p, (uint64_t)item + 1);
    *p++ = '\t';
    p = whole ? tr_print_whole(p, (uint64_t)lround(cut)) : tr_print_decimal(p, lround(cut * 100), 2);
    *p++ = '\n';
    return tr_lines_add(&g->lines, p);
}

static int write_user(struct raters *g, uint32_t user, uint64_t n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, g->options.seed, user, TR_MADE_RATINGS);
    TR_TRY(tr_distinct_begin(&g->distinct, (size_t)n));
    begin_user(g, user);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t item = tr_popular_spread(&g->popular, tr_distinct_draw(&g->distinct, &g->popular, &rng));
        double noise = g->options.noise * tr_rng_normal(&rng);
        enum tr_rating_part part = tr_rng_uniform(&rng) < g->options.test ? TR_RATING_TEST : TR_RATING_TRAIN;
        if (g->options.part != TR_RATING_ALL && g->options.part != part) continue;
        TR_TRY(write_rating(g, user, item, opinion(g, item) + noise));
    }
    return TR_OK;
}

static int check_ratings(const struct tr_generate_ratings *o)
{
    double most = floor((double)o->users * ((double)o->items / TR_SHARE_MOST));
    TR_TRY(TR_CHECK_RANGES({"users", o->users, 1, INFINITY}, {"items", o->items, 1, INFINITY},
                           {"ratings", (double)o->ratings, 1, INFINITY}, {"rank", o->rank, 1, RANK_MOST},
                           {"power", o->power, 0, 10}, {"noise", o->noise, 0, 100},
                           {"test", o->test, 0, 0.999999}));
    if ((double)o->ratings <= most) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "ratings: %llu, expected at most %.0f, a quarter of users times items",
                   (unsigned long long)o->ratings, most);
}

static int write_users(struct raters *g, uint64_t begin, uint64_t end)
{
    struct tr_split share;
    tr_split_begin(&share, g->options.users, g->options.ratings, g->options.seed, begin);
    for (uint64_t user = begin; user < end; user++)
        TR_TRY(write_user(g, (uint32_t)user, tr_min_size(tr_split_next(&share), g->options.items)));
    return TR_OK;
}

int tr_generate_ratings(const struct tr_generate_ratings *options, uint64_t begin, uint64_t end, FILE *out)
{
    struct raters g = {.options = *options};
    TR_TRY(check_ratings(options));
    g.item_seed = tr_mix(options->seed ^ ((uint64_t)1 << 62));
    g.user_seed = tr_mix(options->seed ^ ((uint64_t)1 << 63));
    tr_popular_init(&g.popular, options->items, options->power);
    int status = TR_NEW(&g.factors, (size_t)options->rank + 1);
    if (status == TR_OK) status = tr_lines_open(&g.lines, RATING_BYTES, out);
    if (status == TR_OK) status = write_users(&g, begin, end);
    status = tr_lines_close(&g.lines, status);
    free(g.distinct.taken);
    free(g.factors);
    return status;
}
