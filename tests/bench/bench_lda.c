/* Topics by Gibbs sampling in one process: bench_lda FILE TOPICS SWEEPS [ALPHA BETA BLOCKS [lists]] reads a bag of words
 * (docword, plain or gzip) and prints sweeps, seconds of sampling so far, log p(w, z | α, β) per token and millions of
 * tokens a second since the line before, at sweeps 0, 1, 2, 3, 5 and every tenth.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "model/lda/sampler.h"

struct corpus {
    uint64_t documents, words, pairs, tokens;
    uint64_t *begin, *of_word;
    uint32_t *word;
    float *count;
};

static int read_corpus(const char *path, struct corpus *c)
{
    gzFile file = gzopen(path, "rb");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: cannot be read", path);
    gzbuffer(file, 1 << 20);
    char line[128];
    unsigned long long head[3] = {0}, last = 0;
    for (int i = 0; i < 3; i++) head[i] = gzgets(file, line, sizeof line) ? strtoull(line, NULL, 10) : 0;
    *c = (struct corpus){.documents = head[0], .words = head[1], .pairs = head[2]};
    TR_TRY(TR_NEW(&c->begin, c->documents + 1));
    TR_TRY(TR_NEW(&c->of_word, c->words));
    TR_TRY(TR_NEW(&c->word, c->pairs));
    TR_TRY(TR_NEW(&c->count, c->pairs));
    for (uint64_t i = 0; i < c->pairs && gzgets(file, line, sizeof line); i++) {
        char *at = line;
        unsigned long long d = strtoull(at, &at, 10), w = strtoull(at, &at, 10), n = strtoull(at, &at, 10);
        if (d < last || d > c->documents || w < 1 || w > c->words || !n)
            return tr_fail(TR_ERR_DATA, "%s: malformed, or documents out of order: %s", path, line);
        for (; last < d; last++) c->begin[last] = i;
        c->word[i] = (uint32_t)w - 1;
        c->count[i] = (float)n;
        c->of_word[w - 1] += n;
        c->tokens += n;
    }
    for (; last <= c->documents; last++) c->begin[last] = c->pairs;
    gzclose(file);
    return TR_OK;
}

struct run {
    struct tr_lda_layout layout;
    struct tr_lda_sampler *sampler;
    double beta, *alpha;
    void **block;
    int64_t *total;
};

static int prepare(struct run *r, const struct corpus *c, double alpha, const struct tr_lda_options *options)
{
    tr_batch rows = {.n = c->documents, .begin = c->begin, .column = c->word, .value = c->count};
    uint32_t topics = r->layout.topics;
    TR_TRY(tr_lda_open(options, &r->layout, &rows, NULL, NULL, &r->sampler));
    TR_TRY(TR_NEW(&r->alpha, topics));
    TR_TRY(TR_NEW(&r->total, topics));
    TR_TRY(TR_NEW(&r->block, (size_t)r->layout.blocks));
    for (uint32_t k = 0; k < topics; k++) r->alpha[k] = alpha;
    tr_lda_priors(r->sampler, r->alpha, r->beta);
    tr_lda_start(r->sampler);
    for (int b = 0; b < r->layout.blocks; b++) {
        r->block[b] = aligned_alloc(64, r->layout.bytes[b] + 64);
        if (!r->block[b]) return tr_fail(TR_ERR_SYSTEM, "out of memory");
        memset(r->block[b], 0, r->layout.bytes[b]);
        TR_TRY(tr_lda_count_block(r->sampler, b, r->block[b]));
        tr_lda_block_totals(&r->layout, b, r->block[b], r->total);
    }
    tr_lda_set_totals(r->sampler, r->total);
    return TR_OK;
}

static double likelihood(struct run *r)
{
    double sum = tr_lda_log_documents(r->sampler);
    memset(r->total, 0, r->layout.topics * sizeof *r->total);
    for (int b = 0; b < r->layout.blocks; b++) {
        sum += tr_lda_log_block(&r->layout, b, r->block[b], r->beta);
        tr_lda_block_totals(&r->layout, b, r->block[b], r->total);
    }
    return sum + tr_lda_log_totals(&r->layout, r->total, r->beta);
}

static int run(const struct corpus *c, uint32_t topics, int sweeps, double alpha, double beta, int blocks,
               bool lists)
{
    struct tr_lda_options options = {
        .seed = 1, .cpu = tr_cpu(), .records = lists ? TR_LDA_LISTS : TR_LDA_FASTEST};
    struct run r = {.beta = beta};
    TR_TRY(tr_lda_layout_open(c->of_word, c->words, topics, blocks, &r.layout));
    double before = tr_now(), seconds = 0, at_last = 0;
    TR_TRY(prepare(&r, c, alpha, &options));
    printf("%llu documents, %llu tokens, %u topics, %s; prepared in %.2f s\n",
           (unsigned long long)c->documents, (unsigned long long)c->tokens, topics, tr_cpu_name(options.cpu),
           tr_now() - before);
    for (int s = 0, last = 0; s <= sweeps; s++) {
        before = tr_now();
        for (int b = 0; s && b < blocks; b++) tr_lda_sample(r.sampler, b, r.block[b]);
        seconds += tr_now() - before;
        if (s > 3 && s != 5 && s % 10 && s != sweeps) continue;
        double rate = (double)c->tokens * (s - last) / (seconds - at_last) / 1e6;
        printf("%4d %8.3f %10.4f %7.1f\n", s, seconds, likelihood(&r) / (double)c->tokens, s ? rate : 0);
        fflush(stdout);
        last = s;
        at_last = seconds;
    }
    return TR_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s FILE TOPICS SWEEPS [ALPHA BETA BLOCKS [lists]]\n", argv[0]);
        return TR_ERR_USAGE;
    }
    struct corpus c;
    int status = read_corpus(argv[1], &c);
    if (status == TR_OK)
        status = run(&c, (uint32_t)atoi(argv[2]), atoi(argv[3]), argc > 4 ? atof(argv[4]) : 0.1,
                     argc > 5 ? atof(argv[5]) : 0.01, argc > 6 ? atoi(argv[6]) : 1, argc > 7);
    if (status != TR_OK) fprintf(stderr, "%s\n", tr_error_text());
    return status;
}
