/* Classes of models outside Trireme: in a shared object (model.plugin) or in the program. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "job/text.h"

#define OTHER_VERSION "it is for version %d of trireme/model.h, this is version %d"

/* Reports an error in the description of a class. */
static int refuse(const char *place, const char *what, const char *why)
{
    return tr_job_fail(place, "%s: %s", what, why);
}

/* Returns the error in option i, or NULL. */
static const char *find_fault(const tr_model_class *c, size_t i)
{
    const tr_option *o = &c->options[i];
    bool own = !strncmp(o->name, "model.", 6) || !strncmp(o->name, "solve.", 6);
    const struct tr_model_class *other;
    if (!own) return "is not in section model or solve";
    if (tr_job_known_key(o->name, 0, &other) && !other) return "is a key of all models";
    for (size_t k = 0; k < i; k++)
        if (!strcmp(c->options[k].name, o->name)) return "is listed twice";
    if (o->kind == TR_KIND_NONE || o->kind > TR_KIND_CHOICE) return "has no kind that there is";
    if (o->kind == TR_KIND_CHOICE && !o->words) return "is a choice without words";
    if (!o->by_default || !o->help) return "has no default, or no help";
    return o->offset >= c->options_size ? "lies outside of the struct of options" : NULL;
}

int tr_class_check(const char *place, const char *what, const tr_model_class *c, bool trains_itself)
{
    char text[200];
    if (c->abi != TR_MODEL_ABI) {
        snprintf(text, sizeof text, OTHER_VERSION, c->abi, TR_MODEL_ABI);
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
    for (size_t t = 0; !trains_itself && c->types[t]; t++) /* otherwise there are no other classes */
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

/* ---- loading ---- */

enum { MOST_PLUGINS = 64 };

/* The plugins of this process. They are never unloaded, and their descriptors stay open: they are opened by the name of the
 * descriptor, and dlopen() returns the same library for the same name. */
static struct tr_plugin loaded[MOST_PLUGINS];
static size_t n_loaded;

const struct tr_plugin *tr_plugin_number(size_t i)
{
    return i < n_loaded ? &loaded[i] : NULL;
}

const struct tr_plugin *tr_plugin_of(const tr_model_class *class)
{
    for (size_t i = 0; i < n_loaded; i++)
        if (loaded[i].class == class) return &loaded[i];
    return NULL;
}

static int plugin_checksum(int fd, uint64_t *checksum)
{
    enum { BYTES = 1 << 16 };
    char *piece;
    ssize_t n = 0;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return tr_fail(TR_ERR_SYSTEM, "out of memory for a checksum");
    int status = TR_NEW(&piece, BYTES);
    if (status == TR_OK) {
        XXH3_64bits_reset(state);
        for (off_t at = 0; (n = pread(fd, piece, BYTES, at)) > 0; at += n)
            XXH3_64bits_update(state, piece, (size_t)n);
        if (n < 0) status = tr_fail(TR_ERR_NO_INPUT, "cannot be read: %s", strerror(errno));
        *checksum = XXH3_64bits_digest(state);
        free(piece);
    }
    XXH3_freeState(state);
    return status;
}

/* Loads the open file. The texts of its errors do not contain the path. */
static int plugin_load(int fd, struct tr_plugin *p)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (n_loaded == MOST_PLUGINS) return tr_fail(TR_ERR_CONFIG, "more than %d plugins", MOST_PLUGINS);
    TR_TRY(plugin_checksum(fd, &p->checksum));
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        size_t n = strlen(name);
        bool names_it = strncmp(why, name, n) == 0 && strncmp(why + n, ": ", 2) == 0;
        return tr_fail(TR_ERR_NO_INPUT, "%s", names_it ? why + n + 2 : why);
    }
    p->class = dlsym(library, "tr_plugin");
    if (!p->class)
        return tr_fail(TR_ERR_NO_INPUT, "it has no tr_plugin: expected a tr_model_class of this name");
    if (p->class->abi != TR_MODEL_ABI)
        return tr_fail(TR_ERR_NO_INPUT, OTHER_VERSION, p->class->abi, TR_MODEL_ABI);
    return TR_OK;
}

int tr_plugin_load(const char *path, const char *place, const struct tr_model_class **class)
{
    struct tr_plugin new = {.checksum = 0};
    struct stat file;
    const char *slash = strrchr(path, '/');
    int fd, status = tr_open_code(path, &fd);
    if (status == TR_OK && fstat(fd, &file) < 0) status = tr_fail(TR_ERR_NO_INPUT, "%s", strerror(errno));
    for (size_t i = 0; status == TR_OK && i < n_loaded; i++)
        if (loaded[i].device == file.st_dev && loaded[i].inode == file.st_ino) {
            close(fd);
            *class = loaded[i].class;
            return TR_OK;
        }
    char what[200];
    snprintf(what, sizeof what, "model.plugin %s", tr_shown(path).text);
    if (status == TR_OK) status = plugin_load(fd, &new);
    if (status != TR_OK) {
        char why[640];
        snprintf(why, sizeof why, "%s", tr_error_text());
        return tr_fail(status, "%s: %s: %s", place, what, why);
    }
    TR_TRY(tr_class_check(place, what, new.class, false));
    new.device = file.st_dev;
    new.inode = file.st_ino;
    TR_TRY(tr_copy_string(slash ? slash + 1 : path, &new.name));
    loaded[n_loaded++] = new;
    *class = new.class;
    return TR_OK;
}
