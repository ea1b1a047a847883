/* Texts of any dialect become the usual form, however they are cut. */
#include "reading.h"

#pragma GCC diagnostic ignored "-Woverride-init"
#define USUAL .encoding = TR_UTF8, .delimiter = ',', .quote = '"', .decimal = '.', .header = 1

static struct tr_column_form forms[] = {
    {.name = (char *)"when", .date = TR_DATE_TIME},
    {.name = (char *)"day", .date = TR_DATE_DAY, .format = (char *)"d/m/y"},
    {.name = (char *)"p*", .strip = (char *)"$ % USD", .thousands = ','},
    {.name = (char *)"q", .decimal = ','}};

static const struct {
    const char *what;
    struct tr_dialect dialect;
    size_t forms;
    const char *text;
    size_t n; /* 0: strlen(text) */
    const char *usual;
} cases[] = {
    {"line ends in quotes",
     {USUAL, .newlines = true},
     0,
     "a,b\r\n1,\"x\r\ny\"\n2,\"u \"\"v\"\"\n\n,w\"\n3,z",
     0,
     "\"a\",\"b\"\n1,\"x\vy\"\n2,\"u \"\"v\"\"\v\v,w\"\n3,z"},
    {"a quote that does not close",
     {USUAL, .newlines = true},
     0,
     "a,b\n1,\"x\n2,y\n3,\"z\" w\n4,5\n",
     0,
     "\"a\",\"b\"\n1,\"x\n2,y\n3,\"z\" w\n4,5\n"},
    {"CR", {USUAL, .cr = true}, 0, "a,b\r1,2\r\r3,4\r", 0, "a,b\n1,2\n\n3,4\n"},
    {"UTF-16",
     {USUAL, .encoding = TR_UTF16_LE},
     0,
     "\xff\xfe"
     "a\0\n\0\xe9\0\n\0\x3d\xd8\x00\xde",
     14,
     "a\n\u00e9\n\U0001f600"},
    {"UTF-16, large first", {USUAL, .encoding = TR_UTF16_BE}, 0, "\xfe\xff\0a\0\n\xd8\x3d", 8, "a\n\ufffd"},
    {"Windows-1252", {USUAL, .encoding = TR_LATIN1}, 0, "a\nf\xfcr 5 \x80\n", 0, "a\nf\u00fcr 5 \u20ac\n"},
    {"a mark before UTF-8",
     {USUAL, .delimiter = '|'},
     0,
     "\xef\xbb\xbf"
     "a|b\n1|2\n",
     0,
     "\"a\",\"b\"\n1,2\n"},
    {"CR at the end of names", {USUAL, .delimiter = '|'}, 0, "a|\"b\"\r", 0, "\"a\",\"b\"\n"},
    {"bars",
     {USUAL, .delimiter = '|'},
     0,
     "a|b c\n1|x,y\n\"2\"|\"u|v\"\n |\n",
     0,
     "\"a\",\"b c\"\n1,\"x,y\"\n\"2\",\"u|v\"\n ,\n"},
    {"blanks",
     {USUAL, .delimiter = ' ', .quote = '\''},
     0,
     " a  b\n 1\t 'x y' \n 2  3\n",
     0,
     "\"a\" \"b\"\n1 \"x y\"\n2 3\n"},
    {"colons",
     {USUAL, .delimiter = TR_SEPARATOR_COLONS, .header = 0, .comment = '#'},
     0,
     "1::a:b::3\n#::\n2::c::4",
     0,
     "1::a:b::3\n\n2::c::4"},
    {"single quotes and escapes",
     {USUAL, .quote = '\'', .escape = '\\'},
     0,
     "a,b\n'x, \"y\"','it\\'s'\n'\\\\',\"z\n",
     0,
     "\"a\",\"b\"\n\"x, \"\"y\"\"\",\"it's\"\n\"\\\",\"\"\"z\"\n"},
    {"apostrophes",
     {USUAL, .quote = '\'', .apostrophes = true},
     0,
     "a,b\n'won't, 'tis' ,'x'\n'y' z\n",
     0,
     "\"a\",\"b\"\n\"won't, 'tis\",\"x\"\n\"'y' z\n"},
    {"quotes are text", {USUAL, .quote = '\0'}, 0, "a,b\n\"x,5\" y\n", 0, "\"a\",\"b\"\n\"\"\"x\",5\" y\n"},
    {"decimal comma",
     {USUAL, .delimiter = ';', .decimal = ',', .thousands = '.'},
     0,
     "a;b\n1,5;-1.234.567,25e-3\n12.34;1.234\n\"0,5\"; x,y \n,5;1,\n",
     0,
     "\"a\";\"b\"\n1.5;-1234567.25e-3\n12.34;1234\n0.5; x,y \n.5;1.\n"},
    {"thousands",
     {USUAL, .thousands = ' ', .header = 0, .delimiter = ';'},
     0,
     "1 234;12\u00a0345 678\u202f900;1 23\n",
     0,
     "1234;12345678900;1 23\n"},
    {"preamble, names in two lines, units, comments",
     {USUAL, .skip_lines = 2, .header = 2, .units = true, .comment = '#'},
     0,
     "about \"this\nfile\n# x\nspeed,,t\nmin,max,\n\nkm,km,s\n1,2,3\n#4,5,6\n7,8,9\n",
     0,
     "\n\n\n\n\n\n\"speed min\",\"max\",\"t\"\n1,2,3\n\n7,8,9\n"},
    {"dates and marks",
     {USUAL},
     4,
     "when,day,price,q\n2000-01-02T12:00:00Z,31/12/1999,\"$1,234.5\",\"1,5\"\n,?,7 %,2\nlate,31/04/24,USD "
     "8,3\n"
     "1999-12-31 18:00,1/2/03,$,\n",
     0,
     "\"when.days\",\"when.month\",\"when.weekday\",\"when.hour\",\"day.days\",\"day.month\",\"day.weekday\","
     "\"price\",\"q\"\n"
     "1.5,1,7,12,-1,12,5,1234.5,1.5\n,,,,?,?,?,7,2\nlate,late,late,late,31/04/24,31/04/24,31/04/24,8,3\n"
     "-0.25,12,5,18,1127,2,6,$,\n"},
};

/* Rewrites the text, fed in pieces of n bytes and taken in pieces of m bytes. */
static size_t rewrite_pieces(size_t c, size_t length, size_t n, size_t m, char *to)
{
    struct tr_rewriter *r;
    size_t at = 0, got = 0, room;
    ck_ok(tr_rewriter_open(&cases[c].dialect, forms, cases[c].forms, &r));
    for (bool ended = false; !ended;) {
        char *where;
        size_t bytes = tr_min_size(n, length - at), taken;
        ck_ok(tr_rewriter_room(r, &where, &room));
        if (bytes > 0) memcpy(where, cases[c].text + at, bytes);
        ck_ok(tr_rewriter_add(r, bytes, 1000));
        while ((taken = tr_rewriter_take(r, to + got, m)) > 0) got += taken;
        at += bytes;
        ended = bytes == 0;
    }
    tr_rewriter_close(&r);
    return got;
}

UNIT_LOOP(pieces_of_any_size_become_the_same_text, (int)COUNT(cases))
{
    char text[2000];
    size_t length = cases[_i].n ? cases[_i].n : strlen(cases[_i].text);
    for (size_t n = 1; n <= length + 1; n++) {
        size_t got = rewrite_pieces((size_t)_i, length, n, n % 7 + 1, text);
        text[got] = '\0';
        ck_assert_msg(strcmp(text, cases[_i].usual) == 0, "%s, pieces of %zu:\n%s\nexpected\n%s",
                      cases[_i].what, n, text, cases[_i].usual);
    }
}

/* Stores the lines of a reader at their offsets. */
struct gathered {
    size_t chunk_bytes, bytes;
    char text[2000];
};

static int gather(void *state, const struct tr_file_part *part)
{
    struct gathered *g = state;
    struct tr_text *text;
    struct tr_chunk chunk;
    ck_ok(tr_text_open(&files, part, g->chunk_bytes, &text));
    for (;;) {
        ck_ok(tr_text_next(text, &chunk));
        size_t n = (size_t)(chunk.end - chunk.begin);
        if (n == 0) break;
        memcpy(g->text + chunk.offset, chunk.begin, n);
        g->bytes += n;
    }
    tr_text_close(&text);
    return TR_OK;
}

static void check_readers(size_t c, size_t readers, uint64_t deal, size_t chunk_bytes)
{
    struct gathered g = {.chunk_bytes = chunk_bytes};
    size_t n = strlen(cases[c].usual);
    for (size_t k = 0; k < readers; k++) ck_ok(tr_files_each_part(&files, k, readers, deal, gather, &g));
    bool ends = cases[c].usual[n - 1] == '\n';
    ck_assert_msg(g.bytes == n + !ends && memcmp(g.text, cases[c].usual, n) == 0,
                  "%s, %zu readers, chunks of %zu: %zu bytes\n%s", cases[c].what, readers, chunk_bytes,
                  g.bytes, g.text);
}

UNIT_LOOP(readers_share_the_rewritten_text, (int)COUNT(cases))
{
    size_t c = (size_t)_i, length = cases[c].n ? cases[c].n : strlen(cases[c].text);
    unit_write("plain", cases[c].text, length);
    write_gzip("packed", "wb", cases[c].text, length);
    for (int packed = 0; packed < 2; packed++) {
        open_files(packed ? "packed" : "plain");
        files.form = forms;
        files.forms = cases[c].forms;
        tr_file_set_dialect(&files, 0, &cases[c].dialect);
        ck_assert(files.file[0].rewritten);
        for (size_t chunk_bytes = 1; chunk_bytes <= 64; chunk_bytes++)
            for (size_t readers = 1; readers <= 3; readers++)
                check_readers(c, readers, packed ? 5 : 0, chunk_bytes);
        files.form = NULL; /* tr_files_close() does not free these */
        files.forms = 0;
    }
}

/* Lines keep their numbers. */
UNIT_CASE(lines_are_numbered_as_in_the_file)
{
    const char *text = "a,b\n1,\"x\n\ny\"\n2,3\n";
    uint64_t line;
    unit_write("text", text, strlen(text));
    open_files("text");
    tr_file_set_dialect(&files, 0, &(struct tr_dialect){USUAL, .newlines = true});
    ck_ok(tr_files_line(&files, 0, strlen("\"a\",\"b\"\n1,\"x\v\vy\"\n"), &line));
    ck_assert_uint_eq(line, 5);
}
