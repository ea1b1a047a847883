/* A schema as bytes, for other ranks and the next start. */
#include "data/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct bytes {
    char *at;
    size_t n, capacity;
    const char *from, *end; /* when they are read */
    int status;
};

static void put(struct bytes *b, const void *from, size_t n)
{
    if (b->status == TR_OK) b->status = TR_GROW(&b->at, &b->capacity, b->n + n);
    if (b->status != TR_OK || n == 0) return;
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void get(struct bytes *b, void *to, size_t n)
{
    if (b->status == TR_OK && (size_t)(b->end - b->from) < n)
        b->status = tr_fail(TR_ERR_DATA, "a schema is cut off");
    if (b->status != TR_OK || n == 0) return;
    memcpy(to, b->from, n);
    b->from += n;
}

static void put_texts(struct bytes *b, const struct tr_ids *texts)
{
    put(b, &texts->n, sizeof texts->n);
    for (size_t i = 0; i < texts->n; i++) {
        size_t n;
        const char *text = tr_ids_text(texts, i, &n);
        put(b, &n, sizeof n);
        put(b, text, n);
    }
}

static void get_texts(struct bytes *b, struct tr_ids *texts)
{
    size_t n = 0;
    uint32_t place;
    get(b, &n, sizeof n);
    for (size_t i = 0; i < n && b->status == TR_OK; i++) {
        size_t length = 0;
        get(b, &length, sizeof length);
        if (b->status != TR_OK || length > (size_t)(b->end - b->from)) return;
        b->status = tr_ids_add_text(texts, b->from, length, &place);
        b->from += length;
    }
}

int tr_schema_pack(const struct tr_schema *s, const struct tr_bindings *bindings, char **bytes, size_t *n)
{
    struct bytes b = {.at = NULL};
    struct tr_schema head = *s;
    head.positive = NULL;
    bool positive = s->positive != NULL;
    put(&b, &head, sizeof head);
    put(&b, s->column, s->n * sizeof *s->column);
    put(&b, s->cross, s->crosses * sizeof *s->cross);
    put_texts(&b, &s->names);
    put_texts(&b, &s->missing);
    put_texts(&b, &s->labels);
    put(&b, &positive, sizeof positive);
    put(&b, &bindings->n, sizeof bindings->n);
    for (size_t i = 0; i < bindings->n; i++) {
        put(&b, &bindings->binding[i], sizeof *bindings->binding);
        put(&b, bindings->binding[i].column, bindings->binding[i].fields * sizeof(uint32_t));
    }
    if (b.status != TR_OK) free(b.at);
    *bytes = b.at;
    *n = b.n;
    return b.status;
}

static int get_bindings(struct bytes *b, struct tr_bindings *bindings)
{
    size_t n = 0;
    get(b, &n, sizeof n);
    if (b->status == TR_OK) b->status = TR_NEW(&bindings->binding, n);
    for (size_t i = 0; i < n && b->status == TR_OK; i++) {
        struct tr_binding *to = &bindings->binding[bindings->n++];
        get(b, to, sizeof *to);
        to->column = NULL;
        if (b->status == TR_OK) b->status = TR_NEW(&to->column, to->fields);
        if (b->status == TR_OK) get(b, to->column, to->fields * sizeof *to->column);
    }
    return b->status;
}

static int unpack(struct bytes *b, struct tr_schema *s)
{
    struct tr_schema head = {.n = 0};
    bool positive = false;
    get(b, &head, sizeof head);
    TR_TRY(b->status);
    TR_TRY(TR_NEW(&s->column, head.n));
    s->n = head.n;
    s->named = head.named;
    s->label = head.label;
    get(b, s->column, s->n * sizeof *s->column);
    s->hash = head.hash;
    if (b->status == TR_OK) TR_TRY(TR_NEW(&s->cross, head.crosses));
    s->crosses = head.crosses;
    get(b, s->cross, s->crosses * sizeof *s->cross);
    get_texts(b, &s->names);
    get_texts(b, &s->missing);
    get_texts(b, &s->labels);
    get(b, &positive, sizeof positive);
    TR_TRY(b->status);
    if (positive) {
        size_t n;
        const char *text = tr_ids_text(&s->labels, 1, &n);
        TR_TRY(TR_NEW(&s->positive, n + 1));
        memcpy(s->positive, text, n);
    }
    return tr_schema_number(s);
}

int tr_schema_unpack(const char *bytes, size_t n, struct tr_schema **schema, struct tr_bindings *bindings)
{
    struct bytes b = {.from = bytes, .end = bytes + n};
    struct tr_bindings found = {.n = 0};
    TR_TRY(tr_schema_new(schema));
    int status = unpack(&b, *schema);
    if (status == TR_OK) status = get_bindings(&b, &found);
    if (status == TR_OK) {
        *bindings = found;
        return TR_OK;
    }
    tr_bindings_free(&found);
    tr_schema_release(schema);
    return status;
}
