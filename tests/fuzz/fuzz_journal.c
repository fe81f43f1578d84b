/* A journal segment of any content: read, folded, and opened for writing. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernel/fold.h"
#include "kernel/journal.h"
#include "kernel/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void remove_dir(void)
{
    char path[128];
    for (uint64_t first = 1; first < 3; first++) {
        char name[SEGMENT_NAME_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, segment_name(first, name));
        unlink(path);
    }
    rmdir(dir);
}

static void read_all(void)
{
    struct jreader *r;
    if (jreader_open(dir, 1, &r, NULL) < 0)
        abort();
    for (int errors = 0; errors < 3;) {
        autojmsg struct jmsg *m = NULL;
        int rc = jreader_next(r, &m, NULL, NULL);
        if (rc == 0)
            break;
        errors += rc < 0;
    }
    jreader_close(r);
}

static void open_and_append(void)
{
    static const struct slice parts[] = {{"{}", 2}, {"{}", 2}, {"{}", 2}, {"{}", 2}};
    struct journal *j;
    autojmsg struct jmsg *m = NULL;
    if (jmsg_new(JCHAN_IOPUB, parts, 4, &m, NULL) < 0)
        abort();
    if (journal_open(dir, JOURNAL_LIMIT, &j, NULL) < 0)
        abort();
    if (journal_append(j, m, NULL) < 0)
        abort();
    journal_close(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[128], name[SEGMENT_NAME_MAX];
    if (!*dir) {
        snprintf(dir, sizeof dir, "/dev/shm/fuzz-journal-XXXXXX");
        if (!mkdtemp(dir))
            abort();
        atexit(remove_dir);
    }
    snprintf(path, sizeof path, "%s/%s", dir, segment_name(1, name));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    read_all();
    autobuf struct buf out = BUF_INIT(1 << 24);
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    IGNORE_RESULT(fold_segment(dirfd, 1, &out)); /* no crash is the test */
    close(dirfd);
    open_and_append();
    return 0;
}
