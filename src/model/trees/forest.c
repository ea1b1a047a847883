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

void tr_forest_free(struct tr_forest *f)
{
    free(f->begin);
    free(f->node);
    free(f->note);
    *f = (struct tr_forest){0};
}
