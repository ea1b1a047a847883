#define _GNU_SOURCE
#include "monitor/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/escape.h"
#include "base/file.h"

void tr_json_text(FILE *file, const char *text)
{
    if (text) tr_put_quoted(file, text);
    else fputs("null", file);
}

void tr_json_real(FILE *file, double number)
{
    if (!isfinite(number)) {
        fputs("null", file);
        return;
    }
    char text[32];
    for (int digits = 9; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    fputs(text, file);
}

static void put_name(FILE *file, const char *before, const char *name)
{
    fputs(before, file);
    tr_put_quoted(file, name);
    fputs(": ", file);
}

void tr_json_text_member(FILE *file, const char *name, const char *text)
{
    put_name(file, "  ", name);
    tr_json_text(file, text);
    fputs(",\n", file);
}

void tr_json_real_member(FILE *file, const char *name, double number)
{
    put_name(file, "  ", name);
    tr_json_real(file, number);
    fputs(",\n", file);
}

void tr_json_count_member(FILE *file, const char *name, uint64_t number)
{
    put_name(file, "  ", name);
    fprintf(file, "%" PRIu64 ",\n", number);
}

void tr_json_text_behind(FILE *file, const char *name, const char *text)
{
    put_name(file, ", ", name);
    tr_json_text(file, text);
}

void tr_json_real_behind(FILE *file, const char *name, double number)
{
    put_name(file, ", ", name);
    tr_json_real(file, number);
}

double tr_milliseconds(double seconds)
{
    return round(seconds * 1000) / 1000;
}

int tr_json_render(tr_json_writer *write, const void *what, char **text, size_t *length)
{
    *text = NULL;
    FILE *file = open_memstream(text, length);
    int status = file ? write(file, what) : TR_OK;
    if (!file || fclose(file) != 0) status = tr_fail(TR_ERR_SYSTEM, "out of memory: a JSON file");
    return status;
}

int tr_json_replace(const char *folder, const char *name, bool durable, tr_json_writer *write,
                    const void *what)
{
    char *text;
    size_t length;
    int status = tr_json_render(write, what, &text, &length);
    if (status == TR_OK) status = tr_replace_file(folder, name, text, length, durable);
    free(text);
    return status;
}
