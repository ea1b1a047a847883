/* The loops of dyn.c for one real type: included once for each, with DYN_REAL and DYN(name) defined. */

static bool DYN(is_zero)(size_t width, const DYN_REAL *a)
{
    for (size_t k = 0; k < width; k++)
        if (a[k] != 0) return false;
    return true;
}

/* The mean as an array: m += (u - m) / d, with u = 0 where the update has nothing. */
static void DYN(revise_array)(size_t units, size_t width, struct version *v, const tr_update *u,
                              DYN_REAL *value)
{
    DYN_REAL *mean = v->value, part = (DYN_REAL)(1 / v->count);
    for (size_t i = 0; v->count > 1 && i < units * width; i++) {
        DYN_REAL less = mean[i] * part;
        mean[i] -= less;
        if (value) value[i] -= less;
    }
    const DYN_REAL *update = u->value;
    for (size_t i = 0; i < u->n; i++) {
        size_t at = (u->unit ? u->unit[i] : i) * width;
        for (size_t k = 0; k < width; k++) {
            DYN_REAL more = update[i * width + k] * part;
            mean[at + k] += more;
            if (value) value[at + k] += more;
        }
    }
}

/* One unit of the mean; where only one of both has it, the other counts as 0. */
static void DYN(revise_unit)(size_t width, DYN_REAL part, const DYN_REAL *mean, const DYN_REAL *update,
                             DYN_REAL *revised, DYN_REAL *value)
{
    for (size_t k = 0; k < width; k++) {
        DYN_REAL old = mean ? mean[k] : 0, change = ((update ? update[k] : 0) - old) * part;
        revised[k] = old + change;
        if (value) value[k] += change;
    }
}

/* The mean as a list: both lists ascend, and are merged into a new one. */
static int DYN(revise_list)(size_t width, struct version *v, const tr_update *u, DYN_REAL *value)
{
    const DYN_REAL *mean = v->value, *update = u->value;
    DYN_REAL *revised, part = (DYN_REAL)(1 / v->count);
    uint32_t *unit;
    TR_TRY(TR_NEW(&unit, v->n + u->n));
    TR_TRY(TR_NEW(&revised, (v->n + u->n) * width));
    size_t n = 0, i = 0, j = 0;
    while (i < v->n || j < u->n) {
        uint32_t a = i < v->n ? v->unit[i] : UINT32_MAX, b = UINT32_MAX;
        if (j < u->n) b = u->unit ? u->unit[j] : (uint32_t)j;
        const DYN_REAL *from = b <= a ? update + j * width : NULL;
        j += b <= a;
        if (a > b && DYN(is_zero)(width, from)) continue; /* nothing new */
        unit[n] = a < b ? a : b;
        DYN(revise_unit)
        (width, part, a <= b ? mean + i * width : NULL, from, revised + n * width,
         value ? value + unit[n] * width : NULL);
        i += a <= b;
        n++;
    }
    drop(v);
    v->unit = unit;
    v->value = revised;
    v->n = n;
    return TR_OK;
}

/* value += mean, for the whole share. */
static void DYN(add_all)(size_t units, size_t width, const struct version *v, DYN_REAL *value)
{
    const DYN_REAL *mean = v->value;
    if (!v->unit)
        for (size_t i = 0; i < units * width; i++) value[i] += mean[i];
    for (size_t i = 0; v->unit && i < v->n; i++)
        for (size_t k = 0; k < width; k++) value[v->unit[i] * width + k] += mean[i * width + k];
}

/* The same for some units, which ascend, into packed memory. */
static void DYN(add_some)(size_t width, const struct version *v, size_t n, const uint32_t *unit,
                          DYN_REAL *packed)
{
    const DYN_REAL *mean = v->value;
    for (size_t i = 0, j = 0; i < n; i++) {
        size_t at = unit ? unit[i] : i;
        while (v->unit && j < v->n && v->unit[j] < at) j++;
        if (v->unit && (j == v->n || v->unit[j] != at)) continue;
        const DYN_REAL *from = mean + (v->unit ? j : at) * width;
        for (size_t k = 0; k < width; k++) packed[i * width + k] += from[k];
    }
}
