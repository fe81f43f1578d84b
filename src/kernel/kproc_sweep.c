/* Finds what belongs to a kernel among all processes, by /proc. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "kernel/kproc.h"

#define PROCESS_MAX 65536
#define ENVIRON_MAX ((size_t)4 << 20)

struct proc {
    pid_t pid, ppid, pgrp, session;
    int mine;
};

static int read_proc(const char *name, struct proc *p)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    autobuf struct buf b = BUF_INIT(4096);
    if (fs_read_path(path, b.max, &b, NULL) < 0)
        return 0;
    const char *after = strrchr(buf_str(&b), ')'); /* the name may contain anything */
    if (!after || strlen(after) < 4)
        return 0;
    char state = after[2], *at = (char *)after + 3;
    p->ppid = (pid_t)strtol(at, &at, 10);
    p->pgrp = (pid_t)strtol(at, &at, 10);
    p->session = (pid_t)strtol(at, &at, 10);
    p->pid = (pid_t)strtol(name, NULL, 10);
    p->mine = 0;
    return state != 'Z' && state != 'X';
}

static size_t read_all(struct proc *all)
{
    DIR *d = opendir("/proc");
    if (!d)
        return 0;
    size_t n = 0;
    for (struct dirent *de; n < PROCESS_MAX && (de = readdir(d));)
        if (isdigit((unsigned char)de->d_name[0]) && read_proc(de->d_name, &all[n]))
            n++;
    closedir(d);
    return n;
}

static int has_mark(pid_t pid, const char *id)
{
    char path[64];
    autofree char *mark = xasprintf("%s=%s", KPROC_MARK, id);
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    autobuf struct buf b = BUF_INIT(ENVIRON_MAX);
    if (fs_read_path(path, b.max, &b, NULL) < 0)
        return 0;
    return memmem(b.data, b.len, mark, strlen(mark) + 1) != NULL;
}

static int is_mine(const struct proc *all, size_t n, const struct proc *p, pid_t root,
                   const char *id, pid_t self)
{
    if (root > 1 && (p->pid == root || p->pgrp == root || p->session == root))
        return 1;
    for (size_t i = 0; i < n; i++)
        if (all[i].pid == p->ppid && all[i].mine)
            return 1;
    return p->ppid == self && has_mark(p->pid, id);
}

int kproc_sweep(pid_t root, const char *id, int sig)
{
    autofree struct proc *all = xcalloc(PROCESS_MAX, sizeof *all);
    size_t n = read_all(all);
    pid_t self = getpid();
    int found = 0;
    for (int grew = 1; grew;) {
        grew = 0;
        for (size_t i = 0; i < n; i++) {
            struct proc *p = &all[i];
            if (p->mine || p->pid == self || !is_mine(all, n, p, root, id, self))
                continue;
            p->mine = grew = 1;
            found++;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (all[i].mine && kill(all[i].pid, sig) < 0 && errno == ESRCH)
            found--;
    return found;
}
