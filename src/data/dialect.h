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

enum tr_encoding { TR_UTF8, TR_LATIN1, TR_UTF16_LE, TR_UTF16_BE }; /* TR_LATIN1: Windows-1252, a superset */

/* How characters stand for rows and fields. '\0' stands for none, or, in the settings of a job, for «to be found». */
struct tr_dialect {
    enum tr_encoding encoding;
    char delimiter;      /* ' ' stands for any number of blanks and tabs; TR_SEPARATOR_COLONS for «::» */
    char quote;          /* '"' or '\'' */
    char escape;         /* before a quote in a quoted field; '\0': the quote is doubled */
    char comment;        /* lines that begin with it are dropped */
    char decimal;        /* '.' or ',' */
    char thousands;      /* between groups of three digits: ',', '.', ' ', '\'' or '\0' */
    bool cr;             /* lines end with CR only */
    bool newlines;       /* quoted fields may contain line ends */
    bool units;          /* the line below the header has units, and is dropped */
    uint32_t skip_lines; /* lines above the header, which are dropped */
    uint32_t header;     /* lines of names; those of several lines are joined with a blank */
};

#endif
