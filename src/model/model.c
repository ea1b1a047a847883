#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "class/class.h"
#include "ranks/ranks.h"

/* ---- models of a class, as kinds ---- */

struct instance {
    tr_context *tr;
    const tr_model_class *class;
    void *model;
};

static int check(const tr_job *job)
{
    const tr_model_class *class = job->class;
    return class->check ? class->check(job, job->options) : TR_OK;
}

static int open_instance(tr_context *tr, struct tr_result *result, void **model)
{
    struct instance *i;
    TR_TRY(TR_NEW(&i, 1));
    *model = i;
    i->tr = tr;
    i->class = tr->job->class;
    TR_TRY(tr_agree(tr, tr_new(&i->model, 1, i->class->model_size, "model")));
    int status = i->class->open(tr, tr->job->options, i->model);
    TR_TRY(tr->status != TR_OK ? tr->status : tr_agree(tr, status)); /* what was agreed on has been printed */
    *result = (struct tr_result){.rows = tr->trained_on.rows,
                                 .columns = tr->trained_on.columns,
                                 .nonzeros = tr->trained_on.nonzeros,
                                 .test_auc = NAN,
                                 .test_perplexity = NAN};
    return TR_OK;
}

static int train(void *model)
{
    struct instance *i = model;
    return i->class->train(i->model);
}

static int save(void *model, const char *folder, struct tr_result *result)
{
    struct instance *i = model;
    (void)result;
    return tr_model_write(i->tr, i->class, i->model, folder);
}

static void close_instance(void **model)
{
    struct instance *i = *model;
    if (!i) return;
    if (i->model) i->class->close(i->model);
    free(i->model);
    free(i);
    *model = NULL;
}

const struct tr_model_kind tr_class_kind = {check, open_instance, train, save, close_instance};
