#include "unit.h"

#include "data/dialect.h"

/* The dialect of a text as words: delimiter, quote, escape, comment, decimal mark, thousands, skipped lines, lines of names, others. */
static const char *dialect_text(const char *text, size_t n, const struct tr_dialect *given, char said[200])
{
    static char shown[128];
    struct tr_dialect d;
    struct tr_sample_text piece = {text, n, true};
    ck_ok(tr_dialect_sniff(&piece, 1, given, &d, said));
    char c[6] = {d.delimiter, d.quote, d.escape, d.comment, d.decimal, d.thousands};
    size_t at = 0;
    for (size_t i = 0; i < sizeof c; i++)
        at += (size_t)snprintf(shown + at, 8, "%s ",
                               c[i] == '\t'  ? "tab"
                               : c[i] == ' ' ? "_"
                               : c[i]        ? (char[]){c[i], '\0'}
                                             : "no");
    at += (size_t)snprintf(shown + at, 32, "%u %u", (unsigned)d.skip_lines, (unsigned)d.header);
    static const char *const encodings[] = {"", "", " latin1", " utf16le", " utf16be"};
    snprintf(shown + at, 64, "%s%s%s%s", encodings[d.encoding], d.cr ? " cr" : "",
             d.newlines ? " newlines" : "", d.units ? " units" : "");
    return shown;
}

static const struct tr_dialect any = {.skip_lines = TR_DIALECT_COUNT, .header = TR_DIALECT_COUNT};

static const struct {
    const char *text, *expected;
    const char *said; /* a part of the line for the user; NULL: there is none */
} cases[] = {
    /* the usual form */
    {"", "no \" no no . no 0 1073741824", NULL}, /* delimiter and header are still to be found */
    {"a,b,y\n1,2,0\n2,1,1\n", ", \" no no . no 0 1", NULL},
    {"1,2,0\n2,1,1\n", ", \" no no . no 0 0", NULL},
    {"a,b\r\n1,x\r\n2,y", ", \" no no . no 0 1", NULL},
    {"name,city\nJohn,Berlin\nJane,Paris\n", ", \" no no . no 0 1", NULL},
    {"5\n3\n4\n", ", \" no no . no 0 0", NULL},
    {"text\nfirst: a\nsecond\nthird\n", ", \" no no . no 0 1", NULL},
    {"a;b;y\n1;2;0\n2;1;1\n", "; \" no no . no 0 1", NULL},
    {"a\tb\ty\n1\t2\t0\n2\t\t1\n", "tab \" no no . no 0 1", NULL},
    {" 1  2 0\n 2 11\t1\n10  1 0\n", "_ \" no no . no 0 0", NULL},
    {"1::2::3.5\n2::1::4\n", ": \" no no . no 0 0", NULL},
    {"2008-02-28,1:00:00,NaN\n2008-02-28,2:00:00,NaN\n", ", \" no no . no 0 0", NULL},
    {"text,n\n\"a, b\",1\n\"he said \"\"no\"\"\",2\n", ", \" no no . no 0 1", NULL},
    {"text,n\n\"a\nb\",1\n\"c\",2\n", ", \" no no . no 0 1 newlines", NULL},
    {"size,n\n5\" pipe,1\n6\" pipe,2\n", ", \" no no . no 0 1", NULL},
    /* delimiters that are in the text of the fields, too */
    {"a|b\n1,5|x, y\n2,5|z, y\n", "| \" no no , no 0 1",
     "'|' (data.delimiter), decimal comma (data.decimal)"},
    {"when,x\n2020-01-01 10:00:00,1\n2020-01-02 11:00:00,2\n", ", \" no no . no 0 1", NULL},
    {"name\tn\nSmith, John\t5\nDoe, Jane\t6\n", "tab \" no no . no 0 1", NULL},
    {"name;n\nSmith, John;5\nDoe, Jane;6\nRoe, Jim;7\n", "; \" no no . no 0 1", NULL},
    {"a^b\n1^2\n3^4\n", "^ \" no no . no 0 1", "'^'"},
    {"a\x01"
     "b\n1\x01"
     "2\n3\x01"
     "4\n",
     "\x01 \" no no . no 0 1", "'\\x01'"},
    {"x, y, z\n0.0, 1.0, 2.0\n0.5, 1.5, 2.5\n", ", \" no no . no 0 1", NULL},
    /* quotes and escapes */
    {"a,b\n'x, y',1\n'z, it''s',2\n", ", ' no no . no 0 1", "quotes are ' (data.quote)"},
    {"a,b\n\"x \\\", y\",1\n\"z\\\"\",2\n", ", \" \\ no . no 0 1", "\\ before a quote (data.escape)"},
    {"path,n\n\"C:\\dir\\\",1\n\"D:\\\",2\n", ", \" no no . no 0 1", NULL},
    {"a,b\n5\" x,6\"\n7\" x,8\"\n1,2\n", ", no no no . no 0 1", "\" is text (data.quote)"},
    {"a,b\n\"x\" y,1\nz,2\nw,3\n", ", \" no no . no 0 1", NULL}, /* one row is no evidence */
    {"1,2\n3,4,5\n", ", \" no no . no 0 0", NULL},
    {"a;b\n1;2\n3;4\n5;6,5\n", "; \" no no . no 0 1", NULL},
    {"a,b\n\"x\" y,1\n\"z\" w,2\n", ", no no no . no 0 1", "\" is text (data.quote)"},
    {"a,b\nit's,1\nrock 'n' roll,2\n", ", \" no no . no 0 1", NULL},
    /* line ends and encodings */
    {"a,b,y\r1,2,0\r2,1,1\r", ", \" no no . no 0 1 cr", "lines end with CR"},
    {"\xef\xbb\xbf"
     "a,b\n1,2\n3,4\n",
     ", \" no no . no 0 1", NULL},
    {"ort,n\nK\xf6ln,1\nBonn,2\n", ", \" no no . no 0 1 latin1", "Windows-1252 (data.encoding)"},
    {"ort,n\nK\xc3\xb6ln,1\nBonn,2\n", ", \" no no . no 0 1", NULL},
    /* lines above the header, comments, units */
    {"# made by hand\na,b\n1,2\n3,4\n", ", \" no # . no 0 1", "comments begin with # (data.comment)"},
    {"# a comment\na\tb\ty\n1\t2\t0\n2\t3\t1\n", "tab \" no # . no 0 1", "comments"},
    {"# a comment\na b y\n1 2 0\n2 3 1\n", "_ \" no # . no 0 1", "comments"},
    {"a,b\n1,2\n# pause\n3,4\n", ", \" no # . no 0 1", "comments"},
    {"# energy, flux\n0.5, 1\n1.5, 2\n", ", \" no no . no 0 1", NULL},
    {"Report of 2020\n\na,b,c\n1,2,3\n3,4,5\n", ", \" no no . no 2 1",
     "2 lines above the header (data.skip_lines)"},
    {"Report,,\n,,\na,b,c\n1,2,3\n3,4,5\n", ", \" no no . no 2 1", "2 lines above the header"},
    {"t,v\ns,m/s\n0,1.5\n1,2.5\n", ", \" no no . no 0 1 units", "a line of units"},
    {"cell,cell\nleft,right\n0,1.5\n1,2.5\n", ", \" no no . no 0 2", "2 lines of names (data.header)"},
    {"a,b,c\n1,2\n3,4,5\n6,7,8\n", ", \" no no . no 0 1", NULL},
    {"a,b,c,d\n1,2,3\n3,4,5\n6,7,8\n", ", \" no no . no 0 1", NULL},
    {"a b c\n1,2,3\n3,4,5\n6,7,8\n", ", \" no no . no 0 1", NULL},
    /* headers */
    {"0,1,2,label\n3,6,1,0\n6,1,2,1\n2,7,3,0\n", ", \" no no . no 0 1",
     "the first line has names (data.header)"},
    {"region,2019,2020\nr0,7,5\nr1,3,10\nr0,2,4\n", ", \" no no . no 0 1", "the first line has names"},
    {",a,y\n0,7,1\n1,8,0\n2,9,1\n", ", \" no no . no 0 1", NULL},
    {",0,1,2\n0,.5,.2,.1\n1,.3,.4,.2\n", ", \" no no . no 0 1", "the first line has names"},
    {"\"a\" \"y\"\n\"1\" 7 1\n\"2\" 8 0\n\"3\" 9 1\n", "_ \" no no . no 0 1", "the first column has no name"},
    {"a,y\nu,7,1\nv,8,0\nw,9,1\n", ", \" no no . no 0 1", NULL},
    {"3,unknown,5\n1,2,3\n4,5,6\n", ", \" no no . no 0 0", NULL},
    {"0,1,2\n3,4,5\n1,2,0\n", ", \" no no . no 0 0", NULL},
    {"0,1,2\n.3,.4,.5\n.1,.2,.6\n", ", \" no no . no 0 1", "the first line has names"},
    {"r1,1,2\nr2,3,4\nr2,5,6\n", ", \" no no . no 0 0", NULL},
    {"u1,i1,3\nu2,i1,4\n", ", \" no no . no 0 0", NULL},
    /* notations of numbers */
    {"a;y\n1,5;0\n2,25;1\n-3,5;1\n", "; \" no no , no 0 1", "decimal comma (data.decimal)"},
    {"a;y\n1.234,5;0\n12,25;1\n", "; \" no no , . 0 1", "'.' between thousands"},
    {"a,y\n\"1,037\",0\n\"12,500\",1\n\"999\",1\n", ", \" no no . , 0 1",
     "',' between thousands, or decimal mark"},
    {"a,y\n\"1,037.5\",0\n\"12,500.25\",1\n", ", \" no no . , 0 1", "',' between thousands (data.thousands)"},
    {"a;y\n1,037;0\n12,500;1\n", "; \" no no , no 0 1", "decimal comma, or thousands"},
    {"a;b;y\n0,5;1.037;0\n2,25;12.500;1\n", "; \" no no , . 0 1",
     "decimal comma (data.decimal), '.' between thousands (data.thousands)"},
    {"a;y\n1 037,5;0\n12 500,25;1\n", "; \" no no , _ 0 1", "blanks between thousands"},
    {"a,y\n1'037,0\n12'500,1\n", ", \" no no . ' 0 1", "between thousands"},
    {"a,y\n\"1,5\",0\n\"2,25\",1\nx,1\n", ", \" no no . no 0 1", NULL},
    {"a,y\n$5.50,0\n$7,1\n", ", \" no no . no 0 1",
     "column a has numbers with $, which data.columns='{a: {type: number"},
    {"a,y\n5%,0\n,1\n7 %,1\n", ", \" no no . no 0 1", "strip: \"%\""},
    {"a,y\n5%,0\n$7,1\n", ", \" no no . no 0 1", NULL},
    {"a,y\n1.037,0\n12.500,1\n", ", \" no no . no 0 1", NULL},
};

UNIT_CASE(dialects_are_found_in_small_texts)
{
    char said[200];
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *found = dialect_text(cases[i].text, strlen(cases[i].text), &any, said);
        ck_assert_msg(strcmp(found, cases[i].expected) == 0, "%s\nfound «%s», expected «%s»", cases[i].text,
                      found, cases[i].expected);
        ck_assert_msg(cases[i].said ? strstr(said, cases[i].said) != NULL : !*said,
                      "%s\nsaid «%s», expected «%s»", cases[i].text, said,
                      cases[i].said ? cases[i].said : "");
    }
}

UNIT_CASE(utf16_is_found_with_and_without_a_mark)
{
    static const char text[] = "a,b\n1,2\n3,4\n";
    char wide[64] = "\xff\xfe", said[200];
    for (size_t i = 0; text[i]; i++) wide[2 + 2 * i] = text[i];
    size_t n = 2 * sizeof text;
    ck_assert_str_eq(dialect_text(wide, n, &any, said), ", \" no no . no 0 1 utf16le");
    ck_assert_str_eq(dialect_text(wide + 2, n - 2, &any, said), ", \" no no . no 0 1 utf16le");
    ck_assert_str_eq(dialect_text(wide + 1, n - 2, &any, said), ", \" no no . no 0 1 utf16be");
}

UNIT_CASE(settings_of_the_job_are_kept)
{
    char said[200];
    struct tr_dialect given = any;
    given.delimiter = ';';
    given.header = 0;
    given.quote = TR_DIALECT_NONE;
    const char *text = "a,b\n1,2\n3,4\n";
    ck_assert_str_eq(dialect_text(text, strlen(text), &given, said), "; no no no . no 0 0");
    given = any;
    given.skip_lines = 1;
    given.decimal = '.';
    text = "1;2\na;b\n1,5;2\n3,5;4\n";
    ck_assert_str_eq(dialect_text(text, strlen(text), &given, said), "; \" no no . no 1 1");
}

/* The first lines have whole numbers without quotes, and later parts of the file show delimiter, quotes and decimal mark. */
UNIT_CASE(all_pieces_decide)
{
    char text[2][4096], said[200];
    size_t n[2] = {0, 0};
    struct tr_dialect d;
    for (int i = 0; i < 60; i++) n[0] += (size_t)snprintf(text[0] + n[0], 64, "%d,%d;%d\n", i, 5, i % 3);
    n[1] = (size_t)snprintf(text[1], 64, "7;0\n");
    for (int i = 0; i < 60; i++) n[1] += (size_t)snprintf(text[1] + n[1], 64, "'%d,%d; x';%d\n", i, i, i % 3);
    struct tr_sample_text piece[2] = {{text[0], n[0], true}, {text[1], n[1] - 3, false}};
    ck_ok(tr_dialect_sniff(piece, 2, &any, &d, said));
    ck_assert_int_eq(d.delimiter, ';');
    ck_assert_int_eq(d.quote, '\'');
}
