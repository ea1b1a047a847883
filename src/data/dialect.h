/* Dialects of text tables, and the rewriting of unusual ones.
 *
 * csv.c and triples.c parse the usual form: UTF-8; lines that end with LF or CRLF; fields separated by a comma, a semicolon, a tab
 * or blanks (ratings: also «::»); fields in double quotes, where "" is a quote and no line ends; numbers with a decimal point; and
 * at most one line of names. A file in another dialect is rewritten to this form while it is read, as a compressed file is
 * decompressed: tr_source_read() returns the rewritten text. So no parser knows dialects, and files in the usual form are read at
 * full speed. The rewritten text has as many lines as the file, and error messages name its lines: a dropped line becomes an empty
 * one, and a line end inside of quotes becomes a vertical tab (TR_QUOTED_NEWLINE).
 *
 *   dialect.c   reads the settings of a job, and finds the dialects of its files
 *   sniff.c     finds the dialect of a file from a sample of its text
 *   rewrite.c   rewrites text
 */
#ifndef TR_DATA_DIALECT_H
#define TR_DATA_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/job.h"
#include "trireme/records.h"

/* Stands for a line end inside of quotes in the rewritten text. */
#define TR_QUOTED_NEWLINE '\v'

/* TR_LATIN1 is Windows-1252, a superset of Latin-1. */
enum tr_encoding { TR_ENCODING_UNKNOWN, TR_UTF8, TR_LATIN1, TR_UTF16_LE, TR_UTF16_BE };

/* In the settings of a job: the character does not occur, as in data.quote=none; the sniffer finds skip_lines or header. */
enum { TR_DIALECT_NONE = 1, TR_DIALECT_COUNT = 1 << 30 };

/* How characters stand for rows and fields. In the settings of a job '\0', TR_ENCODING_UNKNOWN and TR_DIALECT_COUNT stand for «to be
 * found»; in the dialect of a file '\0' stands for none. */
struct tr_dialect {
    enum tr_encoding encoding;
    char delimiter; /* ' ' stands for any number of blanks and tabs; TR_SEPARATOR_COLONS for «::» */
    char quote;     /* '"', also if no quotes were found; '\''; '\0': quotes are text */
    char escape;    /* before a quote in a quoted field; '\0': the quote is doubled */
    char comment;   /* lines that begin with it are dropped */
    char decimal;   /* '.' or ',' */
    char thousands; /* between groups of three digits: ',', '.', ' ', '\'' or '\0' */
    bool cr;        /* lines end with CR only */
    bool newlines;  /* quoted fields contain line ends */
    bool
        apostrophes; /* a quote inside of a quoted field is text unless the field ends behind it: data.quote=single */
    bool units;          /* the line below the header has units, and is dropped */
    bool unnamed;        /* the header has no field for the first column, as in files of R */
    bool forms;          /* in the settings of a job: data.columns says how numbers are written */
    uint32_t skip_lines; /* lines above the header, which are dropped */
    uint32_t header;     /* lines of names; those of several lines are joined with a blank */
};

/* The marks of numbers in a table, and its delimiter. decimal '\0': they are the usual ones. */
struct tr_notation {
    char decimal, thousands, delimiter;
};

/* How the fields of a column stand for numbers (data.columns). */
enum tr_date { TR_DATE_NONE, TR_DATE_DAY, TR_DATE_TIME };
struct tr_column_form {
    char *name;  /* name, number from 1, or pattern of the column */
    char *type;  /* as in data.columns */
    char *strip; /* texts, separated by blanks, that are removed from both ends of a field; NULL: none */
    char decimal, thousands; /* '\0': as in the other columns */
    /* The column is replaced by the columns NAME.days (since 2000-01-01), NAME.month and NAME.weekday (Monday: 1); TR_DATE_TIME:
     * also NAME.hour */
    enum tr_date date;
    char *format; /* of dates: letters Y, m, d, H, M, S and other characters; NULL: as 2024-01-31T12:30:00 */
};

/* The last parts of these names. */
extern const char *const tr_date_parts[4];

/* ---- sniff.c ---- */

/* A piece of the text of a file. The first piece of a file begins with the file, the others anywhere, and so inside of a line. */
struct tr_sample_text {
    const char *text;
    size_t n;
    bool from_begin; /* the piece begins where the file begins */
};

/* Finds the dialect of a table from a sample.
 *
 * @param [in]  piece  up to 16 pieces of up to 64 KiB from all parts of the file, as stored; of a compressed file one piece, the first
 *                     MiB of its text
 * @param [in]  given  settings of the job, which are not changed
 * @param [out] found  all members are set. The dialect of an empty sample is the usual one
 * @param [out] said   a line for the user about the decision, if the dialect is not the usual one or if two readings were close;
 *                     otherwise empty
 * @return TR_ERR_DATA if the text is no table, or no text; then `said` is the reason
 */
int tr_dialect_sniff(const struct tr_sample_text *piece, size_t pieces, const struct tr_dialect *given,
                     struct tr_dialect *found, char said[200]);

/* ---- dialect.c ---- */

struct tr_files;
enum { TR_DIALECT_SAID = 400 };

/* Reads an item of data.columns: «name: type», or «name: {type: number, strip: $}». TR_ERR_CONFIG. Free the form also after an
 * error. */
int tr_column_form_read(const tr_job *job, const char *pair, struct tr_column_form *form);
void tr_column_form_free(struct tr_column_form *form);

/* Reads the settings of a job: the dialect that is given, and the forms of columns. TR_ERR_CONFIG. job: NULL means that everything is
 * to be found. tr_files_close() frees the forms. */
int tr_dialect_settings(const tr_job *job, struct tr_files *files);

/* Finds the dialects of text files, from samples and the settings, and stores them in the files.
 *
 * @param [in]  format  TR_FORMAT_AUTO: it is detected. Only tables and ratings have fields; for other formats encoding and line ends
 *                      are found
 * @param [out] said    a line for the user about the dialect of the first file for which there is one; otherwise empty
 */
int tr_dialects_find(struct tr_files *files, enum tr_format format, char said[TR_DIALECT_SAID]);

/* Sets the dialect of a file. */
void tr_file_set_dialect(struct tr_files *files, size_t file, const struct tr_dialect *d);

/* ---- rewrite.c ---- */

/* Returns whether text in this dialect is in the usual form. forms: number of columns that have a form. */
bool tr_dialect_is_usual(const struct tr_dialect *d, size_t forms);

/* Returns the separator of the text in the usual form. */
char tr_dialect_separator(const struct tr_dialect *d);

struct tr_rewriter;

/* The form is used until tr_rewriter_close(), where *rewriter may be NULL. */
int tr_rewriter_open(const struct tr_dialect *d, const struct tr_column_form *form, size_t forms,
                     struct tr_rewriter **rewriter);
void tr_rewriter_close(struct tr_rewriter **rewriter);

/* Text is rewritten in three steps: tr_rewriter_room() returns memory for *n more bytes of the file; tr_rewriter_add() rewrites the
 * n bytes that were stored there, 0 at the end of the file; tr_rewriter_take() copies up to n bytes of the result and returns their
 * number. If it is 0, the first two steps follow again. longest: text without the end of a field or line may be split if it has
 * more bytes. */
int tr_rewriter_room(struct tr_rewriter *r, char **room, size_t *n);
int tr_rewriter_add(struct tr_rewriter *r, size_t n, size_t longest);
size_t tr_rewriter_take(struct tr_rewriter *r, char *to, size_t n);

#endif
