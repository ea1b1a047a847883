/* solve.method auto: chooses while it works. With few columns Newton's method is best from the start; otherwise dual
 * coordinate descent begins, whose passes are cheap and gain most at first, and Newton's method takes over where the proven
 * gap says that it is sooner at the target. */
#include <math.h>
#include <stdlib.h>

#include "linear.h"
#include "newton/newton.h"

/* Gaps that dual coordinate descent has proven, by evaluation. */
enum { WATCHED = 64, LEAST_WATCHED = 6 };

/* Passes that Newton's method takes on data that dual coordinate descent is slow on. (To a gap of 1e-3, with the diagonal
 * preconditioner: 20 newsgroups 14 to 40, w8a 40 to 90, a9a 50 to 90.) */
static const double passes_of_newton = 50;

/* Passes that Newton's method needs to come close to the quantiles of a regression. */
enum { LEAST_OF_CORNERS = 20 };

/* Passes that must be left for Newton's method to take over: it compares the weights with zeros first, and some steps follow. */
static const double least_of_newton = 10;

struct tr_linear_auto {
    const struct tr_linear_method *first;
    bool may_change;
    bool may_advise; /* only sync.mode keeps it from changing, which has not been said */
    /* the scheduler's */
    int64_t n;                           /* evaluations */
    double epoch[WATCHED], gap[WATCHED]; /* of the last ones: evaluation i lies at i % WATCHED */
    double changed;                      /* at that epoch; below 0: not */
};

/* ---- which methods can ---- */

static bool dual_can(const struct tr_loss *loss, const struct tr_linear_options *o)
{
    return tr_linear_dual.minimises(loss) && o->l2 != 0;
}

/* Newton's method does not go back to an earlier model. */
static bool is_patient(const tr_job *job)
{
    return tr_job_number(job, "solve.patience") > 0;
}

static bool newton_could(const struct tr_loss *loss, const tr_job *job, const struct tr_linear_options *o)
{
    (void)o;
    return tr_linear_newton.minimises(loss) && !is_patient(job);
}

static bool newton_can(const struct tr_loss *loss, const tr_job *job, const struct tr_linear_options *o)
{
    return newton_could(loss, job, o) &&
           (tr_job_is(job, "sync.mode", "bsp") || tr_job_is(job, "sync.mode", "auto"));
}

static bool minimises(const struct tr_loss *loss)
{
    return tr_linear_dual.minimises(loss) || tr_linear_newton.minimises(loss);
}

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_loss *loss = tr_linear_loss(job);
    bool newton = newton_can(loss, job, o);
    if (is_patient(job) && !dual_can(loss, o))
        return tr_linear_refuse(job, "solve.patience", "solve.patience needs solve.method sgd here");
    if (!newton && !tr_linear_dual.minimises(loss))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: model.type %s needs sync.mode bsp, for Newton's method: or use solve.method sgd",
                       tr_job_where(job, "sync.mode"), loss->type);
    if (*o->init && !newton)
        return tr_linear_refuse(
            job, "model.init",
            "model.init needs Newton's method here, and that sync.mode bsp: or use solve.method sgd");
    return newton ? tr_linear_newton.check(job, o) : tr_linear_dual.check(job, o);
}

/* ---- opening ---- */

/* Few columns are for Newton's method, and a hinge for each of several classes, too (to a gap of 1e-3 letter takes 57 passes, the
 * ten digits of usps 109; dual coordinate descent more than 1000). Of two classes the hinge is for dual coordinate descent where
 * it steps on one w (a9a, w8a, 20 newsgroups, clicks: 29, 49, 8 and 7 passes to a gap of 1e-3), and not where groups merge
 * theirs (on two of them more than 200 on each; by Newton's method, on any number, 34, 86, 86 and 95). */
static bool prefers_newton(const struct tr_linear *m)
{
    if (m->loss == &tr_loss_svm && tr_groups(m->tr) > 1) return true;
    return (m->loss != &tr_loss_svm || m->outputs > 1) && tr_linear_newton_is_exact(m);
}

/* Dual coordinate descent begins with zeros. */
static int open_auto(struct tr_linear *m)
{
    struct tr_linear_auto *a;
    bool newton = newton_can(m->loss, m->job, m->o), dual = dual_can(m->loss, m->o) && !*m->o->init;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->chooser, 1)));
    a = m->chooser;
    a->changed = -1;
    if (newton) TR_TRY(tr_linear_newton.open(m));
    a->first = m->outputs > 1 ? tr_linear_dual.of_classes : &tr_linear_dual;
    bool corners = m->loss->corner && !tr_linear_classifies(m);
    bool enough = newton && m->epochs >= (corners ? LEAST_OF_CORNERS : tr_linear_newton_least_passes(m));
    if (newton && (!dual || (enough && prefers_newton(m)))) a->first = &tr_linear_newton;
    a->may_change = newton && a->first != &tr_linear_newton && m->o->target_gap > 0;
    a->may_advise = !newton && newton_could(m->loss, m->job, m->o) && m->o->target_gap > 0;
    return a->first == &tr_linear_newton ? TR_OK : a->first->open(m);
}

static void close_auto(struct tr_linear *m)
{
    free(m->chooser);
    m->chooser = NULL;
}

/* ---- watching ---- */

/* Predicts the number of epochs to the target from the later half of the evaluations: the mean of two predictions, that the gap
 * falls by a constant factor per epoch, and that it falls by a power of the epoch, as for workers that merge copies. INFINITY
 * if the gap does not fall. */
static double epochs_left(const struct tr_linear_auto *a, double goal)
{
    int64_t last = a->n - 1, watched = a->n < WATCHED ? a->n : WATCHED, before = last - watched / 2;
    double gap = a->gap[last % WATCHED], old = a->gap[before % WATCHED];
    double epoch = a->epoch[last % WATCHED], first = a->epoch[before % WATCHED];
    if (!(gap > 0) || !(old > gap)) return INFINITY;
    double to_go = log(gap / goal) / log(old / gap);
    return (to_go * (epoch - first) + epoch * (pow(epoch / first, to_go) - 1)) / 2;
}

/* A run that resumes from a checkpoint of a later stage has left dual coordinate descent already. */
void tr_linear_watch(struct tr_linear *m, tr_evaluation *evaluation)
{
    struct tr_linear_auto *a = m->chooser;
    if (!a || !(a->may_change || a->may_advise) || m->solver != a->first || !evaluation->estimated) return;
    double epoch = (double)((a->n + 1) * m->report_every), left;
    bool has_left = tr_context_continues(m->tr);
    a->epoch[a->n % WATCHED] = epoch;
    a->gap[a->n % WATCHED] = fabs(evaluation->gap);
    a->n++;
    if ((evaluation->stop || a->n < LEAST_WATCHED) && !has_left) return;
    left = epochs_left(a, m->o->target_gap);
    if (left <= passes_of_newton && !has_left) return;
    if (epoch + least_of_newton > (double)m->epochs && !has_left) return;
    if (a->may_advise) {
        tr_say(
            m->tr,
            "hint:          the gap of %.2g falls slowly: in sync.mode auto, or bsp, newton would take over",
            evaluation->gap);
        a->may_advise = false;
        return;
    }
    if (!has_left)
        tr_say(m->tr, "method:        newton from epoch %g on, as the gap of %.2g falls slowly", epoch,
               evaluation->gap);
    a->changed = epoch;
    evaluation->stop = true;
}

double tr_linear_epochs_before(const struct tr_linear *m)
{
    return m->chooser ? fmax(m->chooser->changed, 0) : 0;
}

int tr_linear_keep_watch(struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_auto *a = m->chooser;
    if (!a) return TR_OK;
    TR_TRY(tr_snapshot_common(snapshot, "watched", TR_I64, 1, &a->n));
    TR_TRY(tr_snapshot_common(snapshot, "watched_epochs", TR_F64, WATCHED, a->epoch));
    TR_TRY(tr_snapshot_common(snapshot, "watched_gaps", TR_F64, WATCHED, a->gap));
    return tr_snapshot_common(snapshot, "changed", TR_F64, 1, &a->changed);
}

/* ---- training ---- */

static int train(struct tr_linear *m)
{
    struct tr_linear_auto *a = m->chooser;
    m->solver = a->first;
    TR_TRY(m->solver->train(m));
    if (m->solver == &tr_linear_newton) return tr_report_figure(m->tr, "newton_from_epoch", 0);
    TR_TRY(tr_model_tell(m->tr, 1, &a->changed));
    if (a->changed < 0) return TR_OK;
    tr_view_close(&m->view);
    m->solver = &tr_linear_newton;
    m->clocks_per_epoch = 1;
    TR_TRY(m->solver->train(m));
    return tr_report_figure(m->tr, "newton_from_epoch", a->changed);
}

const struct tr_linear_method tr_linear_auto = {.check = check,
                                                .passes = true,
                                                .open = open_auto,
                                                .train = train,
                                                .close = close_auto,
                                                .many_outputs = true,
                                                .weighs_rows = true,
                                                .minimises = minimises,
                                                .diverged = "set solve.method"};
