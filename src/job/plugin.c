/* Classes of models that are not Trireme's own: in a shared object, model.plugin, or in the program. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <dlfcn.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

/* The class, and what is wrong with it. */
static int refuse(const char *place, const char *what, const char *why)
{
    return tr_job_fail(place, "%s: %s", what, why);
}

/* What is wrong with one of its options, or NULL. */
static const char *find_fault(const tr_model_class *c, size_t i)
{
    const tr_option *o = &c->options[i];
    bool own = !strncmp(o->name, "model.", 6) || !strncmp(o->name, "solve.", 6);
    const struct tr_model_class *other;
    if (!own) return "is of neither section model nor solve";
    if (tr_job_known_key(o->name, 0, &other) && !other) return "is a key of all models";
    for (size_t k = 0; k < i; k++)
        if (!strcmp(c->options[k].name, o->name)) return "is there twice";
    if (o->kind == TR_KIND_NONE || o->kind > TR_KIND_CHOICE) return "has no kind that there is";
    if (o->kind == TR_KIND_CHOICE && !o->words) return "is a choice without words";
    if (!o->by_default || !o->help) return "has no default, or no help";
    return o->offset >= c->options_size ? "lies outside of the struct of options" : NULL;
}

int tr_class_check(const char *place, const char *what, const tr_model_class *c, bool trains_itself)
{
    char text[200];
    if (c->abi != TR_MODEL_ABI) {
        snprintf(text, sizeof text, "it is for version %d of trireme/model.h, this is version %d", c->abi,
                 TR_MODEL_ABI);
        return refuse(place, what, text);
    }
    if (!c->name || !c->types || !c->types[0] || !c->noun || !c->help || !c->format)
        return refuse(place, what, "the class lacks a name, types, a noun, help or a format");
    if (!c->methods || !c->methods[0].name || !c->data_formats || !c->data_formats[0])
        return refuse(place, what, "the class has no methods or reads no format of data");
    if (!trains_itself && (c->model_size == 0 || !c->open || !c->train || !c->fields || !c->close))
        return refuse(place, what, "the class lacks model_size, open, train, fields or close");
    if (tr_model_class_of_format(c->format))
        return refuse(place, what, "the class has the format of model files of another class");
    for (size_t t = 0; !trains_itself && c->types[t]; t++) /* else no other class is known */
        for (size_t k = 0; k < tr_model_class_count; k++)
            for (size_t i = 0; tr_model_classes[k]->types[i]; i++)
                if (!strcmp(tr_model_classes[k]->types[i], c->types[t]))
                    return refuse(place, what, "the class has a model.type of another class");
    for (size_t i = 0; i < tr_job_options(c); i++) {
        const char *fault = find_fault(c, i);
        if (!fault) continue;
        snprintf(text, sizeof text, "option %.60s %s", c->options[i].name, fault);
        return refuse(place, what, text);
    }
    return TR_OK;
}

/* A library that is there already is not loaded again; none is ever given back. */
int tr_plugin_load(const char *path, const char *place, const struct tr_model_class **class)
{
    char what[200];
    snprintf(what, sizeof what, "model.plugin %s", tr_shown(path).text);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return refuse(place, what, dlerror());
    const tr_model_class *c = dlsym(library, "tr_plugin");
    if (!c) return refuse(place, what, "it has no tr_plugin: expected a tr_model_class of this name");
    TR_TRY(tr_class_check(place, what, c, false));
    *class = c;
    return TR_OK;
}
