/* Control records in SQLite. The connection belongs to one thread-pool job at a time. A job takes
 * everything that waits and does it in one transaction, so that a burst of writes costs one sync.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/loop.h"
#include "meta/meta.h"

#define BATCH_MAX 4096
#define PENDING_BYTES_MAX ((size_t)256 << 20)
#define BUSY_MS 5000
#define SCHEMA_VERSION 1

enum op_kind { OP_GET, OP_LIST, OP_PUT, OP_DELETE, OP_REFUSED };

struct op {
    struct list link;
    enum op_kind kind;
    char *key;
    void *value;
    size_t len;
    uint64_t if_revision;
    meta_cb cb;
    void *arg;
    int rc;
    struct meta_kv *kv;
    size_t nkv;
};

enum stmt { ST_GET, ST_LIST, ST_PUT, ST_DELETE, ST_NEXT, ST_BEGIN, ST_COMMIT, ST_ROLLBACK, ST_N };

static const char *const sql[ST_N] = {
    [ST_GET] = "SELECT key, value, revision FROM kv WHERE key = ?1",
    [ST_LIST] = "SELECT key, value, revision FROM kv WHERE key >= ?1 AND key < ?2 ORDER BY key",
    [ST_PUT] = ("INSERT INTO kv(key, value, revision) VALUES(?1, ?2, ?3) "
                "ON CONFLICT(key) DO UPDATE SET value = ?2, revision = ?3"),
    [ST_DELETE] = "DELETE FROM kv WHERE key = ?1",
    [ST_NEXT] = "UPDATE counter SET n = n + 1 RETURNING n",
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
};

struct meta {
    uv_loop_t *loop;
    sqlite3 *db;
    sqlite3_stmt *st[ST_N];
    struct list queue; /* of struct op, waiting */
    struct list batch; /* with the pool job, or being answered */
    size_t pending_bytes;
    int running;
};

static int sql_error(struct meta *m, struct err *e, const char *what)
{
    int code = sqlite3_errcode(m->db) & 0xff;
    int rc = code == SQLITE_FULL                            ? ERR_FULL
             : code == SQLITE_BUSY || code == SQLITE_LOCKED ? ERR_BUSY
             : code == SQLITE_NOMEM                         ? ERR_MEMORY
             : code == SQLITE_READONLY                      ? ERR_DENIED
                                                            : ERR_IO;
    return err_set(e, rc, "%s: %s", what, sqlite3_errmsg(m->db));
}

static int exec(struct meta *m, const char *text, const char *what, struct err *e)
{
    return sqlite3_exec(m->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_error(m, e, what);
}

static int check_version(struct meta *m, const char *path, struct err *e)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(m->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK)
        return sql_error(m, e, path);
    int version = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int(st, 0) : -1;
    sqlite3_finalize(st);
    if (version < 0)
        return sql_error(m, e, path);
    if (version > SCHEMA_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "%s: written by a newer version of reitosd (format %d)",
                       path, version);
    return 0;
}

static int open_db(struct meta *m, const char *path, struct err *e)
{
    static const char schema[] =
        "CREATE TABLE IF NOT EXISTS kv(key BLOB PRIMARY KEY, value BLOB NOT NULL, "
        "revision INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE IF NOT EXISTS counter(n INTEGER NOT NULL);"
        "INSERT INTO counter SELECT 0 WHERE NOT EXISTS(SELECT 1 FROM counter);"
        "PRAGMA user_version = 1;";
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &m->db, flags, NULL) != SQLITE_OK)
        return m->db ? sql_error(m, e, path) : err_set(e, ERR_MEMORY, "%s", path);
    sqlite3_busy_timeout(m->db, BUSY_MS);
    int rc = exec(m, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", path, e);
    if (rc == 0)
        rc = check_version(m, path, e);
    if (rc == 0)
        rc = exec(m, schema, path, e);
    for (int i = 0; rc == 0 && i < ST_N; i++) {
        if (sqlite3_prepare_v3(m->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &m->st[i], NULL) !=
            SQLITE_OK)
            rc = sql_error(m, e, path);
    }
    return rc;
}

static void close_db(struct meta *m)
{
    for (int i = 0; i < ST_N; i++)
        sqlite3_finalize(m->st[i]);
    sqlite3_close(m->db);
    free(m);
}

int meta_open(uv_loop_t *loop, const char *url, struct meta **ret, struct err *e)
{
    if (strncmp(url, "sqlite:", 7) != 0 || !url[7])
        return err_set(e, ERR_CONFIG, "control records: %s is not of the form sqlite:PATH", url);
    struct meta *m = xcalloc(1, sizeof *m);
    m->loop = loop;
    list_init(&m->queue);
    list_init(&m->batch);
    int rc = open_db(m, url + 7, e);
    if (rc < 0) {
        close_db(m);
        return rc;
    }
    *ret = m;
    return 0;
}

/* ---- on the thread pool ---- */

/* SQLITE_DONE or SQLITE_ROW, or an error code; the statement stays open after a row. */
static int step(struct meta *m, struct op *op, int rc)
{
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        op->rc = sql_error(m, NULL, "");
    return rc;
}

static void add_row(struct op *op, sqlite3_stmt *st)
{
    op->kv = xrealloc(op->kv, (op->nkv + 1) * sizeof *op->kv);
    size_t klen = (size_t)sqlite3_column_bytes(st, 0), vlen = (size_t)sqlite3_column_bytes(st, 1);
    char *value = xmalloc(vlen + 1);
    if (vlen)
        memcpy(value, sqlite3_column_blob(st, 1), vlen);
    value[vlen] = '\0';
    op->kv[op->nkv++] = (struct meta_kv){.key = xstrndup(sqlite3_column_blob(st, 0), klen),
                                         .value = value,
                                         .len = vlen,
                                         .revision = (uint64_t)sqlite3_column_int64(st, 2)};
}

static void bind_key(sqlite3_stmt *st, int i, const char *key, size_t len)
{
    sqlite3_bind_blob(st, i, len ? key : "", (int)len, SQLITE_TRANSIENT);
}

static void do_get(struct meta *m, struct op *op)
{
    sqlite3_stmt *st = m->st[op->kind == OP_LIST ? ST_LIST : ST_GET];
    size_t len = strlen(op->key);
    bind_key(st, 1, op->key, len);
    if (op->kind == OP_LIST) {
        autofree char *end = xasprintf("%s\xff", op->key); /* above every UTF-8 text */
        bind_key(st, 2, end, len + 1);
    }
    while (step(m, op, sqlite3_step(st)) == SQLITE_ROW)
        add_row(op, st);
    sqlite3_reset(st);
}

/* The revision of a key, 0 when it does not exist, or -1 with op->rc set. */
static int64_t revision_of(struct meta *m, struct op *op)
{
    sqlite3_stmt *st = m->st[ST_GET];
    bind_key(st, 1, op->key, strlen(op->key));
    int rc = step(m, op, sqlite3_step(st));
    int64_t rev = rc == SQLITE_ROW ? sqlite3_column_int64(st, 2) : rc == SQLITE_DONE ? 0 : -1;
    sqlite3_reset(st);
    return rev;
}

static int64_t next_revision(struct meta *m, struct op *op)
{
    sqlite3_stmt *st = m->st[ST_NEXT];
    int64_t n = step(m, op, sqlite3_step(st)) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_reset(st);
    return n;
}

static void do_put(struct meta *m, struct op *op)
{
    if (op->if_revision != META_ANY) {
        int64_t rev = revision_of(m, op);
        if (rev >= 0 && (uint64_t)rev != op->if_revision)
            op->rc = ERR_CONFLICT;
        if (op->rc < 0)
            return;
    }
    sqlite3_stmt *st = m->st[op->kind == OP_PUT ? ST_PUT : ST_DELETE];
    bind_key(st, 1, op->key, strlen(op->key));
    int64_t rev = 0;
    if (op->kind == OP_PUT) {
        rev = next_revision(m, op);
        if (rev < 0)
            return;
        sqlite3_bind_blob(st, 2, op->len ? op->value : "", (int)op->len, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, rev);
    }
    if (step(m, op, sqlite3_step(st)) == SQLITE_DONE && op->kind == OP_PUT) {
        op->kv = xcalloc(1, sizeof *op->kv);
        op->kv[0] = (struct meta_kv){.key = xstrdup(op->key), .revision = (uint64_t)rev};
        op->nkv = 1;
    }
    sqlite3_reset(st);
}

static int simple(struct meta *m, enum stmt which)
{
    int rc = sqlite3_step(m->st[which]);
    int code = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : sql_error(m, NULL, "");
    sqlite3_reset(m->st[which]);
    return code;
}

static void fail_all(struct meta *m, int rc, int writes_only)
{
    list_foreach(it, &m->batch)
    {
        struct op *op = container_of(it, struct op, link);
        if (op->rc == 0 && (!writes_only || op->kind == OP_PUT || op->kind == OP_DELETE))
            op->rc = rc;
    }
}

static void run_batch(void *arg)
{
    struct meta *m = arg;
    int rc = simple(m, ST_BEGIN);
    if (rc < 0) {
        fail_all(m, rc, 0);
        return;
    }
    list_foreach(it, &m->batch)
    {
        struct op *op = container_of(it, struct op, link);
        if (op->kind == OP_GET || op->kind == OP_LIST)
            do_get(m, op);
        else if (op->kind == OP_PUT || op->kind == OP_DELETE)
            do_put(m, op);
        if (sqlite3_get_autocommit(m->db)) { /* the error rolled the transaction back */
            fail_all(m, op->rc < 0 ? op->rc : ERR_IO, 1);
            return;
        }
    }
    rc = simple(m, ST_COMMIT);
    if (rc < 0) {
        if (!sqlite3_get_autocommit(m->db))
            IGNORE_RESULT(simple(m, ST_ROLLBACK)); /* the failed commit is what is reported */
        fail_all(m, rc, 1);
    }
}

/* ---- on the loop ---- */

static void op_free(struct meta *m, struct op *op)
{
    for (size_t i = 0; i < op->nkv; i++) {
        free((void *)(uintptr_t)op->kv[i].key);
        free((void *)(uintptr_t)op->kv[i].value);
    }
    m->pending_bytes -= op->len;
    free(op->kv);
    free(op->key);
    free(op->value);
    free(op);
}

static void start_batch(struct meta *m);

static void batch_done(void *arg)
{
    struct meta *m = arg;
    while (!list_empty(&m->batch)) {
        struct op *op = container_of(m->batch.next, struct op, link);
        list_remove(&op->link);
        if (op->cb)
            op->cb(op->arg, op->rc, op->rc == 0 ? op->kv : NULL, op->rc == 0 ? op->nkv : 0);
        op_free(m, op);
    }
    m->running = 0;
    start_batch(m);
}

static void start_batch(struct meta *m)
{
    if (m->running || list_empty(&m->queue))
        return;
    for (int n = 0; n < BATCH_MAX && !list_empty(&m->queue); n++) {
        struct list *first = m->queue.next;
        list_remove(first);
        list_append(&m->batch, first);
    }
    m->running = 1;
    loop_work(m->loop, run_batch, batch_done, m);
}

static struct op *enqueue(struct meta *m, enum op_kind kind, const char *key, meta_cb cb, void *arg)
{
    struct op *op = xcalloc(1, sizeof *op);
    op->kind = kind;
    op->key = xstrdup(key);
    op->cb = cb;
    op->arg = arg;
    list_append(&m->queue, &op->link);
    return op;
}

void meta_get(struct meta *m, const char *prefix_or_key, int prefix, meta_cb cb, void *arg)
{
    enqueue(m, prefix ? OP_LIST : OP_GET, prefix_or_key, cb, arg);
    start_batch(m);
}

void meta_put(struct meta *m, const char *key, const void *value, size_t len, uint64_t if_revision,
              meta_cb cb, void *arg)
{
    struct op *op = enqueue(m, value ? OP_PUT : OP_DELETE, key, cb, arg);
    op->if_revision = if_revision;
    if (value && (len > META_VALUE_MAX || m->pending_bytes + len > PENDING_BYTES_MAX)) {
        op->kind = OP_REFUSED;
        op->rc = len > META_VALUE_MAX ? ERR_TOO_LARGE : ERR_BUSY;
    } else if (value) {
        op->value = xmalloc(len + 1);
        memcpy(op->value, value, len);
        op->len = len;
        m->pending_bytes += len;
    }
    start_batch(m);
}

void meta_close(struct meta *m)
{
    while (m->running)
        uv_run(m->loop, UV_RUN_ONCE);
    close_db(m);
}
