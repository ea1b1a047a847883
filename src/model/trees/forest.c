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

static inline uint32_t next_node(const struct tr_forest *forest, const struct tr_node *tree, uint32_t at,
                                 const float *row)
{
    const struct tr_node *node = tree + at;
    if (node->feature == (uint32_t)TR_LEAF) return at;
    return node->child + !tr_goes_left(forest, node, row[node->feature]);
}

void tr_tree_leaves(const struct tr_forest *forest, size_t tree, const float *row, size_t columns, size_t n,
                    uint32_t *leaf)
{
    const struct tr_node *node = forest->node + forest->begin[tree];
    uint32_t moved;
    memset(leaf, 0, n * sizeof *leaf);
    do {
        moved = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t next = next_node(forest, node, leaf[i], row + i * columns);
            moved |= next ^ leaf[i];
            leaf[i] = next;
        }
    } while (moved);
}

void tr_forest_free(struct tr_forest *f)
{
    free(f->begin);
    free(f->node);
    free(f->note);
    free(f->set);
    *f = (struct tr_forest){0};
}
