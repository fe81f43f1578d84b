/* Jupyter messages in their three forms; what decodes is encoded again in all of them. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "wire/jmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode_all(struct jmsg *m)
{
    autobuf struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
    autojmsg struct jmsg *again = NULL;
    int binary;
    const struct jhead *h;
    char signature[65];
    IGNORE_RESULT(jmsg_head(m, &h, NULL)); /* any result is right: no crash is the test */
    jmsg_sign(m, "key", signature);
    IGNORE_RESULT(jmsg_encode_legacy(m, &b, &binary));
    if (jmsg_encode_v1(m, &a) == 0 && jmsg_decode_v1(a.data, a.len, &again, NULL) < 0)
        abort();
}

/* Frames of the input: a length byte each. */
static int from_frames(const uint8_t *data, size_t size, struct jmsg **ret)
{
    struct slice frames[32];
    size_t n = 0, at = 0;
    while (at < size && n < COUNTOF(frames)) {
        size_t len = data[at++];
        len = len < size - at ? len : size - at;
        frames[n++] = (struct slice){data + at, len};
        at += len;
    }
    return jmsg_from_zmq(JCHAN_IOPUB, frames, n, size & 1 ? "key" : "", ret, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autojmsg struct jmsg *v1 = NULL, *text = NULL, *binary = NULL, *zmq = NULL;
    if (jmsg_decode_v1(data, size, &v1, NULL) == 0)
        encode_all(v1);
    if (jmsg_decode_legacy(data, size, 0, &text, NULL) == 0)
        encode_all(text);
    if (jmsg_decode_legacy(data, size, 1, &binary, NULL) == 0)
        encode_all(binary);
    if (from_frames(data, size, &zmq) == 0)
        encode_all(zmq);
    return 0;
}
