/* Cells for test_gap_is_a_bound.sh: losses × targets × columns × weights × biases × penalties × methods, on small data.
 *
 *   gap_cells make EVERY PART   writes the data, and job.yaml with a task for each EVERY-th cell, from PART on
 *   gap_cells check EVERY PART  compares the results of these tasks with an independent solver
 *
 * The solver minimises in extended precision: Newton's method on the objective with all corners rounded, by ever smaller widths. Each
 * of its points has an objective F ≥ F*. A gap g that is printed with an objective F' claims F' ≤ (1 + g) F*, so it is wrong if
 * F' > (1 + g) F. It shares no code with the program. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef long double real;

enum { ROWS = 60, COLUMNS = 4, CLASSES = 3, MOST = (COLUMNS + 1) * CLASSES };
enum loss {
    LOGISTIC,
    SVM,
    L2SVM,
    SOFTMAX,
    REST_SVM,
    REST_L2, /* of classes */
    POISSON,
    GAMMA,
    TWEEDIE, /* with a log link */
    LINEAR,
    HUBER,
    QUANTILE,
    LOGCOSH
};
enum { LOSSES = LOGCOSH + 1 };
enum target {
    PLAIN,
    SHIFTED,
    LARGE,
    SMALL,
    TARGETS
}; /* SHIFTED: 1000 is added; of classes one label occurs once */
enum columns { AS_THEY_ARE, TIMES_A_MILLION, CONSTANT, COLLINEAR, KINDS };
enum bias { FREE, NONE, REGULARISED, BIASES };
enum penalty { L2, TINY, L1, BOTH, NO_PENALTY, PENALTIES };

static const struct {
    const char *type, *kind;
    int outputs;
} losses[] = {{"logistic", "two", 1},   {"svm", "two", 1},       {"l2svm", "two", 1},
              {"logistic", "three", 3}, {"svm", "three", 3},     {"l2svm", "three", 3},
              {"poisson", "counts", 1}, {"gamma", "amounts", 1}, {"tweedie", "some", 1},
              {"linear", "real", 1},    {"huber", "real", 1},    {"quantile", "real", 1},
              {"logcosh", "real", 1}};

struct cell {
    enum loss loss;
    enum target target;
    enum columns columns;
    enum bias bias;
    enum penalty penalty;
    bool weights, dual;
    double l2, l1, shape, goal;
    int number, problem; /* problem: equal for cells that differ in the method only */
};

/* ---- data ---- */

static float x[ROWS][COLUMNS], y[ROWS], weight[ROWS];

static double draw(unsigned long *state)
{
    *state = *state * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static double normal(unsigned long *state)
{
    return draw(state) + draw(state) + draw(state) + draw(state) + draw(state) + draw(state) - 3;
}

static double factor_of(enum target t)
{
    return t == LARGE ? 1000 : t == SMALL ? 1e-3 : 1;
}

static void make_rows(enum loss loss, enum target target, enum columns columns)
{
    unsigned long state = 17;
    for (int i = 0; i < ROWS; i++) {
        double value[COLUMNS], m = 0.3;
        for (int j = 0; j < COLUMNS; j++) value[j] = normal(&state);
        for (int j = 0; j < COLUMNS; j++) m += (j == 1 ? -1.2 : 0.5 * j) * value[j];
        if (columns == CONSTANT) value[2] = 5;
        if (columns == COLLINEAR) value[3] = 2 * (double)(float)value[0];
        double noise = normal(&state) * (draw(&state) < 0.1 ? 5 : 1);
        const char *kind = losses[loss].kind;
        double unit = factor_of(target), more = target == SHIFTED ? 1000 : 0,
               amount = exp(0.3 * m + 0.3 * noise);
        bool once = target == SHIFTED;
        if (!strcmp(kind, "two")) y[i] = (once ? i == 5 : m + 2 * noise > 0.3) ? 1 : -1;
        else if (!strcmp(kind, "three"))
            y[i] = (once ? i == 5 : m + noise > 1) ? 2 : m + noise > -0.5 ? 1 : 0;
        else if (!strcmp(kind, "counts")) y[i] = (float)(floor(unit * amount) + more);
        else if (!strcmp(kind, "amounts")) y[i] = (float)(unit * amount + more);
        else if (!strcmp(kind, "some")) y[i] = (float)(noise < -0.5 ? 0 : unit * amount + more);
        else y[i] = (float)(unit * (m + noise) + more);
        for (int j = 0; j < COLUMNS; j++)
            x[i][j] = (float)(columns == TIMES_A_MILLION ? 1e6 * value[j] : value[j]);
        weight[i] = (float)(i % 7 == 3 ? 0 : 0.25 * (1 + i % 9));
    }
}

/* ---- cells ---- */

static bool is_real(enum loss loss)
{
    return loss >= LINEAR;
}

static bool has_log_link(enum loss loss)
{
    return loss >= POISSON && loss <= TWEEDIE;
}

/* Takes the next digit, below n, off the number of a cell. */
static int digit(int *number, int n)
{
    int value = *number % n;
    *number /= n;
    return value;
}

/* Whether the cell is trained: penalties and duals that its loss has, and units for losses of real targets. */
static bool is_used(const struct cell *c)
{
    bool sparse = c->penalty == L1 || c->penalty == BOTH;
    bool descends = c->loss == LOGISTIC || c->loss == L2SVM || c->loss == LINEAR;
    bool has_dual = !has_log_link(c->loss) && c->loss != LOGCOSH && c->penalty <= TINY;
    if (c->target > SHIFTED && c->loss < POISSON) return false;
    if (c->target == SMALL && c->loss == POISSON) return false; /* counts */
    if ((sparse && !descends) || (c->dual && !has_dual)) return false;
    return c->penalty != NO_PENALTY || (c->columns <= CONSTANT && !c->weights && c->bias <= NONE);
}

enum { PROBLEMS = PENALTIES * BIASES * 2 * KINDS * TARGETS * LOSSES, ALL = 2 * PROBLEMS };

/* Calls use() for each cell. */
static int for_cells(int every, int part, int (*use)(const struct cell *cell, void *with), void *with)
{
    int number = 0, bad = 0;
    for (int i = 0, rest = 0; i < ALL; rest = ++i) {
        struct cell c = {.dual = digit(&rest, 2)};
        c.penalty = (enum penalty)digit(&rest, PENALTIES);
        c.bias = (enum bias)digit(&rest, BIASES);
        c.weights = digit(&rest, 2);
        c.columns = (enum columns)digit(&rest, KINDS);
        c.target = (enum target)digit(&rest, TARGETS);
        c.loss = (enum loss)rest;
        if (!is_used(&c) || number++ % every != part) continue;
        double unit = factor_of(c.target), size = c.columns == TIMES_A_MILLION ? 1e6 : 1;
        bool sparse = c.penalty == L1 || c.penalty == BOTH;
        c.number = number;
        c.l2 = c.penalty == L2 || c.penalty == BOTH ? 0.01 : c.penalty == TINY ? 1e-9 : 0;
        c.l1 = sparse ? 0.05 * size * (is_real(c.loss) ? unit : 1) : 0;
        c.shape = c.loss == QUANTILE ? 0.8 : c.loss == TWEEDIE ? 1.3 : 0.7 * unit;
        c.problem = i / 2;
        c.goal = c.dual || number % 2 ? 1e-3 : 1e-6;
        bad += use(&c, with);
    }
    return bad;
}

static void data_of(const struct cell *c, char name[64])
{
    snprintf(name, 64, "%s-%d-%d.svm", losses[c->loss].kind, c->target, c->columns);
}

static int write_cell(const struct cell *c, void *job)
{
    char name[64];
    data_of(c, name);
    FILE *file = fopen(name, "r");
    if (!file && (file = fopen(name, "w"))) {
        make_rows(c->loss, c->target, c->columns);
        for (int i = 0; i < ROWS; i++) {
            fprintf(file, "%.9g", (double)y[i]);
            for (int j = 0; j < COLUMNS; j++) fprintf(file, " %d:%.9g", j + 1, (double)x[i][j]);
            fputc('\n', file);
        }
    }
    if (!file || fclose(file) != 0) return 1;
    fprintf(job, "  t%d: {model.type: %s, data.train: %s, output: out/t%d, solve.target_gap: %g", c->number,
            losses[c->loss].type, name, c->number, c->goal);
    fprintf(job, ", model.bias: %s, model.l2: %.17g", c->bias == NONE ? "no" : "yes", c->l2);
    if (c->bias == REGULARISED) fprintf(job, ", model.bias_l2: yes");
    if (c->l1 > 0) fprintf(job, ", model.l1: %.17g", c->l1);
    if (c->loss == QUANTILE) fprintf(job, ", model.quantile: %.17g", c->shape);
    if (c->loss == TWEEDIE) fprintf(job, ", model.power: %.17g", c->shape);
    if (c->loss == HUBER || c->loss == LOGCOSH) fprintf(job, ", model.delta: %.17g", c->shape);
    if (c->weights) fprintf(job, ", data.weight: weights");
    if (c->number % 3 == 0) fprintf(job, ", model.dtype: f64");
    if (c->dual) fprintf(job, ", solve.method: dual, solve.epochs: 100, report.every: 20");
    else fprintf(job, ", solve.epochs: 2000");
    fprintf(job, "}\n");
    return 0;
}

/* ---- the independent solver ---- */

struct problem {
    const struct cell *cell;
    int outputs, n; /* n: parameters: for each output its weights and its bias, of columns of size about 1 */
    real size[COLUMNS], total;
};

/* Loss of one margin with corners rounded over `width` (0: none), its slope and curvature. */
static real loss_at(const struct cell *c, real m, real target, real width, real *slope, real *curve)
{
    real s = c->shape, r, z;
    enum loss loss = c->loss;
    switch (loss) {
    case LINEAR:
        *slope = m - target;
        *curve = 1;
        return (m - target) * (m - target) / 2;
    case HUBER:
        r = m - target;
        *slope = r > s ? s : r < -s ? -s : r;
        *curve = fabsl(r) <= s;
        return fabsl(r) <= s ? r * r / 2 : s * fabsl(r) - s * s / 2;
    case LOGCOSH:
        r = (m - target) / s;
        *slope = s * tanhl(r);
        *curve = 1 - tanhl(r) * tanhl(r);
        return s * s * (fabsl(r) + log1pl(expl(-2 * fabsl(r))) - logl(2));
    case POISSON:
        *slope = expl(m) - target;
        *curve = expl(m);
        return expl(m) - target * m + (target > 0 ? target * logl(target) - target : 0);
    case GAMMA:
        *curve = target * expl(-m);
        *slope = 1 - *curve;
        return *curve + m - logl(target) - 1;
    case TWEEDIE:
        r = expl((2 - s) * m);
        z = target * expl((1 - s) * m);
        *slope = r - z;
        *curve = (2 - s) * r + (s - 1) * z;
        return (target > 0 ? powl(target, 2 - s) / ((1 - s) * (2 - s)) : 0) - z / (1 - s) + r / (2 - s);
    case LOGISTIC:
        z = target * m;
        *slope = -target / (1 + expl(z));
        *curve = -target * *slope * (1 + target * *slope);
        return z > 0 ? log1pl(expl(-z)) : log1pl(expl(z)) - z;
    case L2SVM:
    case REST_L2:
        z = target * m;
        *slope = z < 1 ? -2 * target * (1 - z) : 0;
        *curve = z < 1 ? 2 : 0;
        return z < 1 ? (1 - z) * (1 - z) : 0;
    case SVM:
    case REST_SVM:
    case QUANTILE: {
        /* from low r to high r, with a parabola in between */
        real low = loss == QUANTILE ? -s : target > 0 ? -1 : 0, high = low + 1;
        r = m - target;
        if (width > 0 && r > low * width && r < high * width) {
            *slope = r / width;
            *curve = 1 / width;
            return r * r / (2 * width);
        }
        *slope = r > 0 ? high : low;
        *curve = 0;
        return *slope * r - (width > 0 ? width * *slope * *slope / 2 : 0);
    }
    default: return 0;
    }
}

static bool is_regularised(const struct problem *p, int k)
{
    return k % (COLUMNS + 1) < COLUMNS || p->cell->bias == REGULARISED;
}

/* Objective, gradient and Hessian; g NULL: the objective alone, without rounding. */
static real objective(const struct problem *p, const real *w, real width, real *g, real h[MOST][MOST])
{
    const struct cell *c = p->cell;
    real sum = 0, slope[CLASSES], curve[CLASSES], m[CLASSES];
    int each = COLUMNS + 1;
    for (int a = 0; g && a < p->n; a++) {
        g[a] = 0;
        for (int b = 0; b < p->n; b++) h[a][b] = 0;
    }
    for (int i = 0; i < ROWS; i++) {
        real v[COLUMNS + 1], of = (c->weights ? (real)weight[i] : 1) / p->total, most = -INFINITY, all = 0,
                             loss = 0;
        for (int j = 0; j < COLUMNS; j++) v[j] = (real)x[i][j] / p->size[j];
        v[COLUMNS] = c->bias != NONE;
        if (of == 0) continue;
        for (int k = 0; k < p->outputs; k++) {
            m[k] = 0;
            for (int j = 0; j < each; j++) m[k] += w[k * each + j] * v[j];
            most = m[k] > most ? m[k] : most;
        }
        for (int k = 0; k < p->outputs && c->loss == SOFTMAX; k++) all += expl(m[k] - most);
        if (c->loss == SOFTMAX) loss = most + logl(all) - m[(int)y[i]];
        for (int k = 0; k < p->outputs; k++) {
            if (c->loss == SOFTMAX) slope[k] = expl(m[k] - most) / all;
            else
                loss += loss_at(c, m[k],
                                p->outputs == 1  ? (real)y[i]
                                : (int)y[i] == k ? 1
                                                 : -1,
                                width, &slope[k], &curve[k]);
        }
        sum += of * loss;
        if (!g) continue;
        for (int k = 0; k < p->outputs; k++)
            for (int a = 0; a < each; a++) {
                real own = slope[k] - (c->loss == SOFTMAX && (int)y[i] == k);
                g[k * each + a] += of * own * v[a];
                for (int l = 0; l < p->outputs; l++) {
                    real hess = c->loss == SOFTMAX ? slope[k] * ((k == l) - slope[l]) : k == l ? curve[k] : 0;
                    for (int b = 0; b < each && hess != 0; b++)
                        h[k * each + a][l * each + b] += of * hess * v[a] * v[b];
                }
            }
    }
    for (int k = 0; k < p->n; k++) {
        if (!is_regularised(p, k)) continue;
        real size = k % each < COLUMNS ? p->size[k % each] : 1, l2 = c->l2 / size / size;
        real l1 = k % each < COLUMNS ? c->l1 / size : 0,
             of = width > 0 ? sqrtl(w[k] * w[k] + width * width) : fabsl(w[k]);
        sum += l2 / 2 * w[k] * w[k] + l1 * of;
        if (!g) continue;
        g[k] += l2 * w[k] + (width > 0 ? l1 * w[k] / of : 0);
        h[k][k] += l2 + (width > 0 ? l1 * width * width / (of * of * of) : 0);
    }
    return sum;
}

/* Solves (H + ridge) s = -g by Cholesky. */
static void newton_step(int n, real h[MOST][MOST], const real *g, real ridge, real *s)
{
    real f[MOST][MOST];
    for (int a = 0; a < n; a++)
        for (int b = 0; b <= a; b++) {
            real sum = h[a][b] + (a == b ? ridge * (1e-3L + h[a][a]) : 0);
            for (int k = 0; k < b; k++) sum -= f[a][k] * f[b][k];
            f[a][b] = a > b ? sum / f[b][b] : sum > 1e-25L ? sqrtl(sum) : 1;
        }
    for (int a = 0; a < n; a++) {
        s[a] = -g[a];
        for (int k = 0; k < a; k++) s[a] -= f[a][k] * s[k];
        s[a] /= f[a][a];
    }
    for (int a = n - 1; a >= 0; a--) {
        for (int k = a + 1; k < n; k++) s[a] -= f[k][a] * s[k];
        s[a] /= f[a][a];
    }
}

/* Returns the least objective that it finds; sets w to its weights. */
static real solve(const struct problem *p, real unit, real *w)
{
    real g[MOST], h[MOST][MOST], s[MOST], next[MOST], at[MOST], least = objective(p, w, 0, NULL, NULL);
    memcpy(at, w, sizeof at);
    bool smooth =
        p->cell->l1 == 0 && p->cell->loss != SVM && p->cell->loss != REST_SVM && p->cell->loss != QUANTILE;
    for (real width = unit; width > 1e-14L * unit; width /= 16) {
        real ridge = 1e-3L, now = objective(p, at, width, g, h);
        for (int turn = 0; turn < (smooth ? 400 : 120) && ridge < 1e12L; turn++) {
            newton_step(p->n, h, g, ridge, s);
            for (int k = 0; k < p->n; k++) next[k] = at[k] + s[k];
            real then = objective(p, next, width, g, h);
            bool better = then < now;
            if (better) {
                bool little = now - then < 1e-17L * now;
                memcpy(at, next, sizeof at);
                now = then;
                ridge = ridge > 1e-18L ? ridge / 8 : ridge;
                if (little) break;
            } else {
                ridge *= 16;
                now = objective(p, at, width, g, h);
            }
        }
        real exact = objective(p, at, 0, NULL, NULL);
        if (exact < least) {
            least = exact;
            memcpy(w, at, sizeof at);
        }
        if (smooth) break;
    }
    return least;
}

/* ---- results ---- */

/* Finds the first line of FOLDER/NAME that has the words; returns the place behind them, NULL if there is none. */
static const char *find_line(const char *folder, const char *name, const char *words, char line[512])
{
    char path[96];
    const char *found = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, 512, file)) found = strstr(line, words);
    if (file) fclose(file);
    return found ? found + strlen(words) : NULL;
}

static bool number_in(const char *folder, const char *name, double *value)
{
    char line[512], key[64];
    snprintf(key, sizeof key, "  \"%s\": ", name);
    const char *found = find_line(folder, "summary.json", key, line);
    return found && sscanf(found, "%lf", value) == 1;
}

static bool log_has(const char *folder, const char *words)
{
    char line[512];
    return find_line(folder, "log", words, line);
}

/* Reads the weights of model.txt: for each output those of the columns and the bias. */
static bool read_model(const struct cell *c, const struct problem *p, const char *folder, real *w)
{
    char path[96], line[512];
    snprintf(path, sizeof path, "%s/model.txt", folder);
    FILE *file = fopen(path, "r");
    bool fine = false;
    while (file && !fine && fgets(line, sizeof line, file)) fine = !strcmp(line, "w\n");
    for (int j = 0; fine && j < COLUMNS + (c->bias != NONE); j++)
        for (int k = 0; k < p->outputs; k++) {
            fine = fine && fscanf(file, "%Lf", &w[k * (COLUMNS + 1) + j]) == 1;
            if (j < COLUMNS) w[k * (COLUMNS + 1) + j] *= p->size[j];
        }
    if (file) fclose(file);
    return fine;
}

struct tally {
    int cells, proven, reached, missed, tight,
        refused;            /* missed: cells of auto that do not reach their goal */
    real optimum[PROBLEMS]; /* least objectives, kept in a file for runs on other ranks; 0: not known yet */
};

static int check_cell(const struct cell *c, void *with)
{
    struct tally *tally = with;
    char folder[32], name[64], what[160];
    double f = NAN, gap = NAN, estimate = NAN;
    snprintf(folder, sizeof folder, "out/t%d", c->number);
    data_of(c, name);
    snprintf(what, sizeof what, "t%d: %s %s, weights %d, bias %d, penalty %d, %s, goal %g", c->number,
             losses[c->loss].type, name, c->weights, c->bias, c->penalty, c->dual ? "dual" : "auto", c->goal);
    tally->cells++;
    if (!number_in(folder, "objective", &f)) {
        tally->refused++;
        bool slow = c->dual && log_has(folder, "worse than"); /* too few epochs */
        return slow ? 0 : printf("%s: no result\n", what) > 0;
    }
    bool proven = number_in(folder, "gap", &gap), estimated = number_in(folder, "estimated_gap", &estimate);
    if (proven && estimated) return printf("%s: proven and estimated\n", what) > 0;
    if (!proven && !estimated) gap = INFINITY;
    make_rows(c->loss, c->target, c->columns);
    struct problem p = {.cell = c, .outputs = losses[c->loss].outputs};
    p.n = p.outputs * (COLUMNS + 1);
    for (int j = 0; j < COLUMNS; j++) p.size[j] = c->columns == TIMES_A_MILLION ? 1e6L : 1;
    for (int i = 0; i < ROWS; i++) p.total += c->weights ? (real)weight[i] : 1;
    real w[MOST] = {0}, mean = 0, written;
    if (!read_model(c, &p, folder, w)) return printf("%s: no model.txt\n", what) > 0;
    written = objective(&p, w, 0, NULL, NULL);
    if (fabsl(written - f) > (c->number % 3 ? 1e-4L : c->l1 > 0 ? 1e-7L : 1e-9L) * f + 1e-12L)
        return printf("%s: objective %.15g, that of the model is %.17Lg\n", what, f, written) > 0;
    memset(w, 0, sizeof w);
    for (int i = 0; i < ROWS; i++) mean += (c->weights ? (real)weight[i] : 1) * (real)y[i] / p.total;
    if (p.outputs == 1 && c->bias == FREE)
        w[COLUMNS] = has_log_link(c->loss) ? logl(mean) : is_real(c->loss) ? mean : 0;
    real *optimum = &tally->optimum[c->problem];
    if (*optimum == 0) *optimum = solve(&p, (is_real(c->loss) ? factor_of(c->target) : 1), w);
    real least = *optimum;
    double truth = (double)(((real)f - least) / least);
    if (c->penalty == NO_PENALTY) {
        if (proven) return printf("%s: proven without a penalty\n", what) > 0;
        bool named = log_has(folder, "estimated");
        if (truth > 1e-3 && f > 1e-3 * factor_of(c->target))
            return printf("%s: objective %g, optimum %Lg\n", what, f, least) > 0;
        return named ? 0 : printf("%s: no word of an estimate\n", what) > 0;
    }
    if (estimated) return printf("%s: only estimated\n", what) > 0;
    tally->proven++;
    tally->reached += gap <= c->goal;
    tally->missed += !c->dual && !(gap <= c->goal);
    tally->tight += truth > gap / 100;
    if (!(gap >= 0)) return printf("%s: gap %g\n", what, gap) > 0;
    if ((real)f > (1 + (real)gap) * least * (1 + 1e-18L))
        return printf("%s: objective %.15g, optimum %.17Lg or less: gap %.3g, printed %.3g\n", what, f, least,
                      truth, gap) > 0;
    if (gap > c->goal && !log_has(folder, "is not reached"))
        return printf("%s: gap %g, and no word why\n", what, gap) > 0;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    int every = atoi(argv[2]), part = atoi(argv[3]), bad;
    if (!strcmp(argv[1], "make")) {
        FILE *job = fopen("job.yaml", "w"), *file = fopen("weights", "w");
        if (!job || !file) return 2;
        make_rows(LINEAR, PLAIN, AS_THEY_ARE);
        for (int i = 0; i < ROWS; i++) fprintf(file, "%.9g\n", (double)weight[i]);
        fprintf(job, "data: {scale: none}\nreport: {progress: no}\ntasks:\n");
        bad = for_cells(every, part, write_cell, job);
        return fclose(job) != 0 || fclose(file) != 0 || bad > 0;
    }
    static struct tally tally;
    FILE *optima = fopen("optima", "r");
    if (optima && (fread(tally.optimum, sizeof tally.optimum, 1, optima) != 1 || fclose(optima) != 0))
        return 2;
    bad = for_cells(every, part, check_cell, &tally);
    optima = fopen("optima", "w");
    if (!optima || fwrite(tally.optimum, sizeof tally.optimum, 1, optima) != 1 || fclose(optima) != 0)
        return 2;
    printf("%d cells: %d proven, %d of them to their goal (of auto %d are not), %d with a true gap above a "
           "hundredth of the "
           "printed one; %d refused; %d wrong\n",
           tally.cells, tally.proven, tally.reached, tally.missed, tally.tight, tally.refused, bad);
    return bad > 0;
}
