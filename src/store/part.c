#include "store/part.h"

#include <stdlib.h>

void tr_part_free(struct tr_part *part)
{
    free(part->run);
    free(part->begin);
    free(part->data);
    part->run = NULL;
    part->begin = NULL;
    part->data = NULL;
}
