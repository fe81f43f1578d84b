/* Stream text as JupyterLab shows and saves it: "\r" returns to the start of the line, "\b" takes
 * back one character, what follows overwrites. The cursor is kept between pieces, so that feeding
 * a text in pieces gives the same as feeding it whole. Any thread; one at a time.
 */
#ifndef REITOS_WIRE_TEXTFOLD_H
#define REITOS_WIRE_TEXTFOLD_H

#include "base/buf.h"

struct textfold {
    struct buf text;
    size_t cursor; /* byte offset of the next character, always within the last line */
};

void textfold_init(struct textfold *f, size_t max);
void textfold_free(struct textfold *f);
int textfold_feed(struct textfold *f, const char *s, size_t n) WARN_UNUSED; /* ERR_TOO_LARGE */

#endif
