#include <stdlib.h>
#include <string.h>

#include "trees.h"

int tr_forest_add(struct tr_forest *f, const struct tr_node *node, const struct tr_node_note *note,
                  size_t nodes)
{
    TR_TRY(TR_GROW(&f->begin, &f->begin_capacity, f->trees + 2));
    TR_TRY(TR_GROW(&f->node, &f->node_capacity, f->nodes + nodes));
    TR_TRY(TR_GROW(&f->note, &f->note_capacity, f->nodes + nodes));
    if (f->trees == 0) f->begin[0] = 0;
    memcpy(f->node + f->nodes, node, nodes * sizeof *node);
    memcpy(f->note + f->nodes, note, nodes * sizeof *note);
    f->nodes += nodes;
    f->begin[++f->trees] = f->nodes;
    return TR_OK;
}

int tr_forest_add_set(struct tr_forest *f, const uint32_t *value, size_t n, struct tr_node *node)
{
    uint32_t words = 0;
    for (size_t i = 0; i < n; i++) words = value[i] / 32 >= words ? value[i] / 32 + 1 : words;
    TR_TRY(TR_GROW(&f->set, &f->set_capacity, f->set_words + words));
    memset(f->set + f->set_words, 0, words * sizeof *f->set);
    for (size_t i = 0; i < n; i++) f->set[f->set_words + value[i] / 32] |= 1u << value[i] % 32;
    node->set = (uint32_t)f->set_words;
    node->flags = TR_NODE_CATEGORY | words << TR_NODE_SET_WORDS;
    f->set_words += words;
    return TR_OK;
}

void tr_forest_free(struct tr_forest *f)
{
    free(f->begin);
    free(f->node);
    free(f->note);
    free(f->set);
    *f = (struct tr_forest){0};
}
