#include "labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t tr_label_place(const float *labels, size_t n, float label)
{
    size_t first = 0, all = n;
    while (n > 0) {
        size_t half = n / 2;
        if (labels[first + half] < label) first += half + 1, n -= half + 1;
        else n = half;
    }
    return first < all && labels[first] == label ? first : all;
}

size_t tr_label_unknown(const tr_data *train, const tr_data *test)
{
    size_t i = 0;
    while (i < test->labels && tr_label_place(train->label, train->labels, test->label[i]) < train->labels)
        i++;
    return i;
}

int tr_labels_note_unknown(tr_context *tr, const tr_data *train, const tr_data *test)
{
    tr_worker me = {.tr = tr, .member = tr_set_rank(tr, TR_SET_GROUP), .group_size = tr_group_size(tr)};
    bool again = me.member > 0 && tr_job_is(tr_context_job(tr), "data.partition", "vertical");
    uint64_t rows = 0;
    if (test->rows.n > 0 && !again)
        for (size_t i = tr_data_part_begin(test, &me); i < tr_data_part_end(test, &me); i++)
            rows += tr_label_place(train->label, train->labels, test->rows.label[i]) == train->labels;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &rows, 1));
    tr_say(tr, "note:          rows of data.test whose label no training row has: %llu, wrong in any case",
           (unsigned long long)rows);
    return TR_OK;
}

bool tr_labels_are_classes(const tr_data *train)
{
    enum { MOST_GUESSED = 100 };
    if (train->labels <= 2) return true;
    if (train->labels > MOST_GUESSED) return false;
    for (size_t i = 0; i < train->labels; i++)
        if (train->label[i] != rintf(train->label[i])) return false;
    return true;
}

static int bad_weights(const tr_job *job, const char *at)
{
    return tr_fail(
        TR_ERR_CONFIG,
        "%s: model.class_weights, at «%.40s»: expected balanced, or label:weight pairs with blanks "
        "between them, weights from 0 to 1e12",
        tr_job_where(job, "model.class_weights"), at);
}

/* One «label:weight» of the list; *at moves behind it. */
static int next_pair(const tr_job *job, const char **at, float *label, double *weight)
{
    char *end, *behind;
    *label = strtof(*at, &end);
    if (end == *at || *end != ':' || !isfinite(*label)) return bad_weights(job, *at);
    *weight = strtod(end + 1, &behind);
    if (behind == end + 1 || (*behind && !strchr(" ,", *behind)) || !(*weight >= 0 && *weight <= 1e12))
        return bad_weights(job, *at);
    *at = behind + strspn(behind, " ,");
    return TR_OK;
}

static bool is_balanced(const char *text)
{
    return strcmp(text, "balanced") == 0;
}

int tr_class_weights_check(const tr_job *job, const char *text)
{
    float label;
    double weight;
    if (is_balanced(text)) return TR_OK;
    while (*text) TR_TRY(next_pair(job, &text, &label, &weight));
    return TR_OK;
}

int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight)
{
    double total = 0, labels = 0;
    for (size_t k = 0; k < n; k++) {
        total += count[k];
        labels += count[k] > 0;
    }
    for (size_t k = 0; k < n; k++)
        weight[k] = is_balanced(text) && count[k] > 0 ? total / (labels * count[k]) : 1;
    while (*text && !is_balanced(text)) {
        float of;
        double w = 0;
        TR_TRY(next_pair(job, &text, &of, &w));
        size_t k = tr_label_place(label, n, of);
        if (k == n)
            return tr_fail(TR_ERR_CONFIG, "%s: model.class_weights has label %.9g, which no row has",
                           tr_job_where(job, "model.class_weights"), (double)of);
        weight[k] = w;
    }
    return TR_OK;
}

int tr_check_initial(const tr_job *job, const char *path)
{
    if (!tr_job_output_has(job, path)) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.init is in the folder of this run: expected another output",
                   tr_job_where(job, "model.init"));
}
