/* Terminal output as text. */
#include <stdio.h>

#include "gateway/terminals.h"

/* Length that a UTF-8 lead byte promises; 0 for no lead byte. */
static size_t promised(unsigned char c)
{
    return c < 0x80                ? 1
           : c >= 0xF0 && c < 0xF5 ? 4
           : c >= 0xE0 && c < 0xF0 ? 3
           : c >= 0xC2 && c < 0xE0 ? 2
                                   : 0;
}

size_t terminal_whole(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xC0) == 0x80)
            continue;
        return promised(c) > back ? n - back : n;
    }
    return n;
}

/* Length of the valid character at s, 0 when there is none. */
static size_t valid_char(const unsigned char *s, size_t n)
{
    size_t len = promised(s[0]);
    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

void terminal_frame(const char *text, size_t len, struct buf *out)
{
    buf_add(out, "[\"stdout\",\"");
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = valid_char((const unsigned char *)text + i, len - i);
        if (!n) {
            buf_add(out, "\\ufffd");
            n = 1;
        } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            buf_add(out, "\\u%04x", c);
        } else {
            IGNORE_RESULT(buf_append(out, text + i, n)); /* at most 6 times TERMINAL_REPLAY */
        }
        i += n;
    }
    buf_add(out, "\"]");
}
