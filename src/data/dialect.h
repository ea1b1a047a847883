/* Dialects of text tables, and the rewriting of unusual ones.
 *
 * csv.c and triples.c parse the usual form: UTF-8; lines that end with LF or CRLF; fields separated by a comma, a semicolon, a tab
 * or blanks (ratings: also «::»); fields in double quotes, where "" is a quote and no line ends; numbers with a decimal point; and
 * at most one line of names. A file in another dialect is rewritten to this form while it is read, as a compressed file is
 * decompressed: tr_source_read() returns the rewritten text. So no parser knows dialects, and files in the usual form are read at
 * full speed. The rewritten text has as many lines as the file, and error messages name its lines: a dropped line becomes an empty
 * one, and a line end inside of quotes becomes a vertical tab (TR_QUOTED_NEWLINE).
 *
 *   sniff.c     finds the dialect of a file from a sample of its text
 *   rewrite.c   rewrites text
 */
#ifndef TR_DATA_DIALECT_H
#define TR_DATA_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stands for a line end inside of quotes in the rewritten text. */
#define TR_QUOTED_NEWLINE '\v'

/* TR_LATIN1 is Windows-1252, a superset of Latin-1. */
enum tr_encoding { TR_ENCODING_AUTO, TR_UTF8, TR_LATIN1, TR_UTF16_LE, TR_UTF16_BE };

/* In the settings of a job: the character does not occur, as in data.quote=none; skip_lines or header are to be found. */
enum { TR_DIALECT_NONE = 1, TR_DIALECT_COUNT = 1 << 30 };

/* How characters stand for rows and fields. In the settings of a job '\0', TR_ENCODING_AUTO and TR_DIALECT_COUNT stand for «to be
 * found»; in the dialect of a file '\0' stands for none. */
struct tr_dialect {
    enum tr_encoding encoding;
    char delimiter;      /* ' ' stands for any number of blanks and tabs; TR_SEPARATOR_COLONS for «::» */
    char quote;          /* '"', also if no quotes were found; '\''; '\0': quotes are text */
    char escape;         /* before a quote in a quoted field; '\0': the quote is doubled */
    char comment;        /* lines that begin with it are dropped */
    char decimal;        /* '.' or ',' */
    char thousands;      /* between groups of three digits: ',', '.', ' ', '\'' or '\0' */
    bool cr;             /* lines end with CR only */
    bool newlines;       /* quoted fields contain line ends */
    bool units;          /* the line below the header has units, and is dropped */
    uint32_t skip_lines; /* lines above the header, which are dropped */
    uint32_t header;     /* lines of names; those of several lines are joined with a blank */
};

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
 * @return TR_ERR_DATA if the text is no table, or no text
 */
int tr_dialect_sniff(const struct tr_sample_text *piece, size_t pieces, const struct tr_dialect *given,
                     struct tr_dialect *found, char said[200]);

#endif
