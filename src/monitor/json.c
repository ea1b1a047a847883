#include "monitor/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "job/text.h"

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
