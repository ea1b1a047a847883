#include "data/labels.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* A worker that has met as many as are told apart has enough for all. */
int tr_labels_unite(tr_context *tr, const struct tr_labels *labels, tr_data *data)
{
    uint64_t most = (uint64_t)labels->bits.n << 32 | (uint64_t)tr->rank;
    float *mine, *all;
    uint64_t n = 0;
    size_t kept = 0;
    TR_TRY(TR_NEW(&mine, labels->bits.n));
    for (size_t i = 0; i < labels->bits.n; i++) mine[i] = tr_labels_value(labels, i);
    int status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &most, 1);
    bool counts = most >> 32 < TR_LABELS_MOST || (int)(most & UINT32_MAX) == tr->rank;
    if (status == TR_OK)
        status = tr_gather_to_all(tr, TR_SET_ALL, mine, counts ? labels->bits.n : 0, sizeof *mine,
                                  (void **)&all, &n);
    free(mine);
    TR_TRY(status);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, by_value);
    for (size_t i = 0; i < n && kept < TR_LABELS_MOST; i++)
        if (i == 0 || all[i] != all[i - 1]) all[kept++] = all[i];
    data->labels = kept;
    data->label = all;
    return TR_OK;
}

int tr_labels_need_names(tr_context *tr, const struct tr_read_report *report, const tr_data *data,
                         bool *names)
{
    enum { MOST_GUESSED = 100 }; /* as tr_labels_are_classes() */
    int form = data->state->form;
    int32_t any = *report->long_label != '\0';
    tr_data all = {.labels = 0};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, &any, 1));
    *names = any && form & (TR_DATA_CLASSES | TR_DATA_NODE);
    if (!any || *names || !(form & TR_DATA_FEW_CLASSES)) return TR_OK;
    TR_TRY(tr_labels_unite(tr, &report->labels, &all));
    *names = all.labels <= MOST_GUESSED;
    for (size_t i = 0; i < all.labels; i++) *names = *names && all.label[i] == rintf(all.label[i]);
    free((void *)(uintptr_t)all.label);
    return TR_OK;
}

int tr_labels_find_third(tr_context *tr, const struct tr_labels *labels, tr_data *data)
{
    struct seen {
        float value;
        bool there;
        struct tr_file_place place;
    } mine[3] = {{0}}, *all, *first[3];
    for (size_t i = 0; i < 3 && i < labels->bits.n; i++)
        mine[i] = (struct seen){tr_labels_value(labels, i), true, labels->place[i]};
    TR_TRY(TR_NEW(&all, (size_t)tr->size * 3));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all));
    size_t kinds = 0;
    for (size_t i = 0; i < (size_t)tr->size * 3 && kinds < 3; i++) {
        bool known = !all[i].there;
        for (size_t k = 0; k < kinds; k++) known = known || first[k]->value == all[i].value;
        if (!known) first[kinds++] = &all[i];
    }
    const struct tr_files *files = &data->state->files;
    const struct tr_file_place *third = &first[2]->place;
    const struct tr_file *file = &files->file[third->file];
    uint64_t line = third->offset;
    char text[3][TR_SHOWN_NAME];
    for (int i = 0; i < 3; i++) tr_schema_label_text(data->state->schema, first[i]->value, text[i]);
    int status =
        tr->rank == 0 && !file->hdf5 ? tr_files_line(files, third->file, third->offset, &line) : TR_OK;
    if (status == TR_OK)
        status = tr_format(&data->state->third_label, "%s:%s%llu: label %s is the third kind after %s and %s",
                           file->path, file->hdf5 ? " row " : "", (unsigned long long)line, text[2], text[0],
                           text[1]);
    free(all);
    return status;
}
