/* The loops of dyn.c for one real type: included once for each, with DYN_REAL and DYN(name) defined. */

static bool DYN(is_zero)(size_t width, const DYN_REAL *a)
{
    for (size_t k = 0; k < width; k++)
        if (a[k] != 0) return false;
    return true;
}

/* The sum as an array. */
static void DYN(revise_array)(size_t units, size_t width, struct version *v, const tr_update *u, double old,
                              DYN_REAL *value)
{
    DYN_REAL *sum = v->sum, weight = (DYN_REAL)v->weight, change = (DYN_REAL)(v->weight - old);
    for (size_t i = 0; value && v->count > 1 && i < units * width; i++) value[i] += change * sum[i];
    const DYN_REAL *update = u->value;
    for (size_t i = 0; i < u->n; i++) {
        size_t at = (u->unit ? u->unit[i] : i) * width;
        for (size_t k = 0; k < width; k++) {
            sum[at + k] += update[i * width + k];
            if (value) value[at + k] += weight * update[i * width + k];
        }
    }
}

/* The sum as a list: it and the update's ascend, and are merged into a new one. */
static int DYN(revise_list)(size_t width, struct version *v, const tr_update *u, double old, DYN_REAL *value)
{
    const DYN_REAL *sum = v->sum, *update = u->value, none[1] = {0};
    DYN_REAL *revised, weight = (DYN_REAL)v->weight, change = (DYN_REAL)(v->weight - old);
    uint32_t *unit;
    TR_TRY(TR_NEW(&unit, v->n + u->n));
    TR_TRY(TR_NEW(&revised, (v->n + u->n) * width));
    size_t n = 0, i = 0, j = 0;
    while (i < v->n || j < u->n) {
        uint32_t a = i < v->n ? v->unit[i] : UINT32_MAX, b = UINT32_MAX;
        if (j < u->n) b = u->unit ? u->unit[j] : (uint32_t)j;
        bool has_sum = a <= b, has_update = b <= a;
        const DYN_REAL *s = has_sum ? sum + i * width : none, *x = has_update ? update + j * width : none;
        i += has_sum;
        j += has_update;
        if (!has_sum && DYN(is_zero)(width, x)) continue; /* nothing new */
        unit[n] = has_sum ? a : b;
        for (size_t k = 0; k < width; k++) {
            DYN_REAL before = has_sum ? s[k] : 0, more = has_update ? x[k] : 0;
            revised[n * width + k] = before + more;
            if (value) value[unit[n] * width + k] += change * before + weight * more;
        }
        n++;
    }
    drop(v);
    TR_SHRINK(&unit, n); /* units that both have were counted twice */
    TR_SHRINK(&revised, n * width);
    v->unit = unit;
    v->sum = revised;
    v->n = n;
    return TR_OK;
}

/* product = U · u, square = |u|² */
static void DYN(products)(size_t width, const struct version *v, const tr_update *u, double *product,
                          double *square)
{
    const DYN_REAL *sum = v->sum, *update = u->value;
    for (size_t i = 0, j = 0; i < u->n; i++) {
        size_t at = u->unit ? u->unit[i] : i;
        while (v->unit && j < v->n && v->unit[j] < at) j++;
        bool found = !v->unit || (j < v->n && v->unit[j] == at);
        const DYN_REAL *s = sum + (v->unit ? j : at) * width;
        for (size_t k = 0; k < width; k++) {
            double x = (double)update[i * width + k];
            *square += x * x;
            if (found) *product += x * (double)s[k];
        }
    }
}

/* value += weight × sum, for the whole share. */
static void DYN(add_all)(size_t units, size_t width, const struct version *v, DYN_REAL *value)
{
    const DYN_REAL *sum = v->sum, weight = (DYN_REAL)v->weight;
    if (!v->unit)
        for (size_t i = 0; i < units * width; i++) value[i] += weight * sum[i];
    for (size_t i = 0; v->unit && i < v->n; i++)
        for (size_t k = 0; k < width; k++) value[v->unit[i] * width + k] += weight * sum[i * width + k];
}

/* The same for some units, which ascend, into packed memory. */
static void DYN(add_some)(size_t width, const struct version *v, size_t n, const uint32_t *unit,
                          DYN_REAL *packed)
{
    const DYN_REAL *sum = v->sum, weight = (DYN_REAL)v->weight;
    for (size_t i = 0, j = 0; i < n; i++) {
        size_t at = unit ? unit[i] : i;
        while (v->unit && j < v->n && v->unit[j] < at) j++;
        if (v->unit && (j == v->n || v->unit[j] != at)) continue;
        const DYN_REAL *from = sum + (v->unit ? j : at) * width;
        for (size_t k = 0; k < width; k++) packed[i * width + k] += weight * from[k];
    }
}
