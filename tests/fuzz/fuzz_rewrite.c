/* Fuzzing the rewriter of dialects: it must survive any bytes in any dialect, the result must not depend on the pieces in which the
 * text arrives, and it must have as many lines as the text.
 *
 * The first bytes of an input choose the dialect, the rest is the text.
 */
#define _GNU_SOURCE
#include "data/dialect.h"
#include "data/field.h"
#include "fuzz.h"

enum { CHOICES = 8, MOST = 1 << 12, ROOM = 64 * MOST };

static char word[][16] = {"a", "b", "p*", "2", "d/m/Y H:M", "$ % USD"};
static const struct tr_column_form forms[] = {{.name = word[0], .date = TR_DATE_TIME},
                                              {.name = word[1], .date = TR_DATE_DAY, .format = word[4]},
                                              {.name = word[2], .strip = word[5], .thousands = ','},
                                              {.name = word[3], .decimal = ','}};

static size_t rewrite(const struct tr_dialect *d, size_t n_forms, const char *text, size_t n, size_t piece,
                      char *to)
{
    struct tr_rewriter *r;
    size_t got = 0, room, taken;
    char *at;
    DEMAND(tr_rewriter_open(d, forms, n_forms, &r) == TR_OK);
    for (size_t bytes = 1, begin = 0; bytes > 0; begin += bytes) {
        bytes = tr_min_size(piece, n - begin);
        DEMAND(tr_rewriter_room(r, &at, &room) == TR_OK && room >= bytes);
        if (bytes > 0) memcpy(at, text + begin, bytes);
        DEMAND(tr_rewriter_add(r, bytes, 1 << 20) == TR_OK);
        for (; (taken = tr_rewriter_take(r, to + got, 4096)) > 0; got += taken)
            DEMAND(got + taken + 4096 < ROOM);
    }
    tr_rewriter_close(&r);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char whole[ROOM], cut[ROOM];
    if (n < CHOICES || n > MOST) return 0;
    const char *text = (const char *)data + CHOICES;
    n -= CHOICES;
    struct tr_dialect d = {.encoding = (enum tr_encoding)(data[0] % 4 + 1),
                           .delimiter = ",;|\t :"[data[1] % 6],
                           .quote = "\"'"[data[2] % 3],
                           .escape = "\0\\"[data[2] >> 4 & 1],
                           .comment = "\0#"[data[2] >> 5 & 1],
                           .decimal = ".,"[data[3] & 1],
                           .thousands = "\0,. '"[data[3] >> 1 & 3],
                           .cr = data[4] & 1,
                           .newlines = data[4] & 2,
                           .apostrophes = data[4] & 4,
                           .units = data[4] & 8,
                           .skip_lines = data[5] % 4,
                           .header = data[6] % 4};
    size_t n_forms = d.header ? data[7] % 5 : 0;
    size_t m = rewrite(&d, n_forms, text, n, 1 << 16, whole);
    DEMAND(rewrite(&d, n_forms, text, n, data[7] / 5 % 10 + 1, cut) == m && memcmp(whole, cut, m) == 0);
    if (d.encoding > TR_LATIN1 || memchr(text, TR_QUOTED_NEWLINE, n)) return 0;
    size_t before = 0, after = 0;
    for (size_t i = 0; i < n; i++) before += text[i] == '\n' || (d.cr && text[i] == '\r');
    for (size_t i = 0; i < m; i++) after += whole[i] == '\n' || whole[i] == TR_QUOTED_NEWLINE;
    DEMAND(after == before ||
           after == before + 1); /* a header may lack the line end at the end of the text */
    return 0;
}
