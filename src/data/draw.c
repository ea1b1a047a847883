#include "data/draw.h"

#include <errno.h>
#include <string.h>

int tr_check_ranges(const struct tr_range *range, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct tr_range *r = &range[i];
        if (r->value >= r->least && r->value <= r->most) continue;
        if (isinf(r->most))
            return tr_fail(TR_ERR_CONFIG, "%s: %.10g, expected at least %g", r->key, r->value, r->least);
        return tr_fail(TR_ERR_CONFIG, "%s: %.10g, expected %g to %.10g", r->key, r->value, r->least, r->most);
    }
    return TR_OK;
}

/* ---- popularity: n things, the k-th most popular one drawn in proportion to k^-power ---- */

void tr_popular_init(struct tr_popular *p, uint32_t n, double power)
{
    double end = (double)n + 1;
    *p = (struct tr_popular){.n = n, .bits = 1};
    p->exponent = fabs(1 - power) < 1e-9 ? 0 : 1 - power;
    p->span = p->exponent == 0 ? log(end) : pow(end, p->exponent) - 1;
    while (((uint64_t)1 << p->bits) < n) p->bits++;
}

uint32_t tr_popular_rank(const struct tr_popular *p, double u)
{
    double x = p->exponent == 0 ? exp(u * p->span) : pow(1 + u * p->span, 1 / p->exponent);
    uint32_t last = p->n - 1;
    return x - 1 < last ? (uint32_t)(x - 1) : last;
}

uint32_t tr_popular_spread(const struct tr_popular *p, uint32_t rank)
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

/* ---- ranks that differ within a row ---- */

int tr_distinct_begin(struct tr_distinct *d, size_t most)
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

/* Marks the rank as taken by this row; false if it already was. */
static bool take(struct tr_distinct *d, uint32_t rank)
{
    size_t i = (size_t)tr_mix(rank) & (d->slots - 1);
    for (; d->taken[i].row == d->row; i = (i + 1) & (d->slots - 1))
        if (d->taken[i].rank == rank) return false;
    d->taken[i] = (struct tr_taken){d->row, rank};
    return true;
}

uint32_t tr_distinct_draw(struct tr_distinct *d, const struct tr_popular *p, struct tr_rng *rng)
{
    uint32_t rank = 0;
    for (int i = 0; i < 8; i++)
        if (take(d, rank = tr_popular_rank(p, tr_rng_uniform(rng)))) return rank;
    do rank = rank + 1 < p->n ? rank + 1 : 0;
    while (!take(d, rank));
    return rank;
}

/* ---- uneven shares: n owners, who get 0.4 to 4 times the mean ---- */

/* Between 1 and 10, and 2.56 in the mean. */
static double weight(const struct tr_split *s, uint64_t owner)
{
    return 10 / (1 + 9 * ((double)(tr_mix(s->seed ^ owner) >> 11) * 0x1p-53));
}

void tr_split_begin(struct tr_split *s, uint64_t n, uint64_t whole, uint64_t seed, uint64_t begin)
{
    *s = (struct tr_split){.n = n, .whole = whole, .seed = tr_mix(seed), .next = begin};
    for (uint64_t i = 0; i < n; i++) {
        if (i == begin) s->sum = s->total;
        s->total += weight(s, i);
    }
}

static uint64_t before(const struct tr_split *s)
{
    return (uint64_t)(s->sum / s->total * (double)s->whole);
}

uint64_t tr_split_next(struct tr_split *s)
{
    uint64_t low = before(s);
    s->sum += weight(s, s->next++);
    return before(s) - low;
}

/* ---- text: lines gathered into large pieces ---- */

static int write_failed(void)
{
    return tr_fail(TR_ERR_IO, "writing generated rows: %s", strerror(errno));
}

int tr_lines_open(struct tr_lines *l, size_t longest, FILE *out)
{
    *l = (struct tr_lines){.out = out, .longest = longest, .room = tr_max_size((size_t)64 << 10, longest)};
    TR_TRY(TR_NEW(&l->text, l->room));
    l->at = l->text;
    return TR_OK;
}

int tr_lines_flush(struct tr_lines *l)
{
    size_t n = (size_t)(l->at - l->text);
    l->at = l->text;
    return fwrite(l->text, 1, n, l->out) == n ? TR_OK : write_failed();
}

int tr_lines_close(struct tr_lines *l, int status)
{
    if (status == TR_OK && l->text) status = tr_lines_flush(l);
    if (status == TR_OK && l->text && (fflush(l->out) != 0 || ferror(l->out))) status = write_failed();
    free(l->text);
    l->text = NULL;
    return status;
}

char *tr_print_decimal(char *p, int64_t number, int decimals)
{
    uint64_t unit = 1, size = number < 0 ? -(uint64_t)number : (uint64_t)number;
    for (int i = 0; i < decimals; i++) unit *= 10;
    if (number < 0) *p++ = '-';
    p = tr_print_whole(p, size / unit);
    uint64_t rest = size % unit;
    if (rest == 0) return p;
    *p++ = '.';
    for (; rest > 0; rest = rest * 10 % unit) *p++ = (char)('0' + rest * 10 / unit);
    return p;
}
