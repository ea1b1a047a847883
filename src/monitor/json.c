#define _GNU_SOURCE
#include "monitor/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "job/text.h"
#include "trireme/base.h"
#include "base/file.h"

void tr_json_text(FILE *file, const char *text)
{
    if (!text) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    while (*text) {
        uint32_t character;
        size_t length = tr_utf8_decode(text, &character);
        if (length == 0) fputs("\\ufffd", file);
        else if (character == '"' || character == '\\') fprintf(file, "\\%c", *text);
        else if (character < 0x20 || character == 0x7f) fprintf(file, "\\u%04x", character);
        else fwrite(text, 1, length, file);
        text += length ? length : 1;
    }
    fputc('"', file);
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

void tr_json_text_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": ", name);
    tr_json_text(file, text);
    fputs(",\n", file);
}

void tr_json_real_member(FILE *file, const char *name, double number)
{
    fprintf(file, "  \"%s\": ", name);
    tr_json_real(file, number);
    fputs(",\n", file);
}

void tr_json_count_member(FILE *file, const char *name, uint64_t number)
{
    fprintf(file, "  \"%s\": %" PRIu64 ",\n", name, number);
}

void tr_json_text_behind(FILE *file, const char *name, const char *text)
{
    fprintf(file, ", \"%s\": ", name);
    tr_json_text(file, text);
}

void tr_json_real_behind(FILE *file, const char *name, double number)
{
    fprintf(file, ", \"%s\": ", name);
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
