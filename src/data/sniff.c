/* Finds the dialect of a table from a sample of its text. */
#include "data/dialect.h"

#include <string.h>

#include "base/base.h"

/* Returns a setting, or the value for «to be found»; none: the value for TR_DIALECT_NONE. */
static char sniff_chosen(char given, char usual)
{
    return given == '\0' ? usual : given == TR_DIALECT_NONE ? '\0' : given;
}

static enum tr_encoding sniff_encoding(const struct tr_sample_text *piece, size_t pieces)
{
    const char *text = pieces > 0 && piece->n >= 2 ? piece->text : "  ";
    if (memcmp(text, "\xff\xfe", 2) == 0) return TR_UTF16_LE;
    return memcmp(text, "\xfe\xff", 2) == 0 ? TR_UTF16_BE : TR_UTF8;
}

int tr_dialect_sniff(const struct tr_sample_text *piece, size_t pieces, const struct tr_dialect *given,
                     struct tr_dialect *found, char said[200])
{
    *said = '\0';
    *found = (struct tr_dialect){
        .encoding = given->encoding ? given->encoding : sniff_encoding(piece, pieces),
        .delimiter = given->delimiter,
        .quote = sniff_chosen(given->quote, '"'),
        .escape = sniff_chosen(given->escape, '\0'),
        .comment = sniff_chosen(given->comment, '\0'),
        .decimal = given->decimal ? given->decimal : '.',
        .thousands = sniff_chosen(given->thousands, '\0'),
        .skip_lines = given->skip_lines == TR_DIALECT_COUNT ? 0 : given->skip_lines,
        .header = given->header,
    };
    if (pieces == 0 || found->encoding > TR_LATIN1) return TR_OK;
    bool lf = memchr(piece->text, '\n', piece->n), quoted = false;
    found->cr = !lf && memchr(piece->text, '\r', piece->n);
    for (size_t i = 0; i < piece->n && found->quote; i++) {
        if (piece->text[i] == found->quote) quoted = !quoted;
        found->newlines |= quoted && piece->text[i] == '\n';
    }
    return TR_OK;
}
