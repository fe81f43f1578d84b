/* Frames between daemon and shim, whole and cut in two. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_frame(void *arg, const struct frame *f, struct err *e)
{
    size_t *sum = arg;
    (void)e;
    for (size_t i = 0; i < f->nparts; i++) {
        for (size_t k = 0; k < f->parts[i].len; k++)
            *sum += ((const unsigned char *)f->parts[i].data)[k];
    }
    return json_is_object(f->head) ? 0 : -1;
}

static size_t feed(const uint8_t *data, size_t size, size_t cut)
{
    struct buf in = BUF_INIT(1 << 20);
    size_t sum = 0;
    if (buf_append(&in, data, cut) == 0 && frame_decode(&in, on_frame, &sum, NULL) == 0 &&
        buf_append(&in, data + cut, size - cut) == 0)
        IGNORE_RESULT(frame_decode(&in, on_frame, &sum, NULL)); /* no crash is the test */
    buf_free(&in);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (feed(data, size, size) != feed(data, size, size / 2))
        abort();
    return 0;
}
