/* Environments and command lines of kernels. Pure but for reading this process's environment. */
#ifndef REITOS_KERNEL_KENV_H
#define REITOS_KERNEL_KENV_H

#include "base/json.h"

/* The whole environment of a kernel: this process's without REITOS_TOKEN, PYTHONHASHSEED of the
 * installation, then `add` (object of strings, may be NULL), then the mark of kernel `id` (may be
 * NULL). New object. */
json_t *kenv_make(const json_t *add, const char *hash_seed, const char *id);
/* NULL-terminated "NAME=value" array of an object; kenv_free() it. */
char **kenv_array(const json_t *env);
/* NULL-terminated copy of `argv` with {connection_file} replaced everywhere. NULL when `argv` is
 * not an array of at least one string. */
char **kenv_argv(const json_t *argv, const char *connection_file);
void kenv_free(char **v); /* NULL-safe */
/* What a zygote's kernel gets as arguments: those of `argv` after "-m MODULE", without
 * "-f {connection_file}". New array. */
json_t *kenv_zygote_args(const json_t *argv);
/* PYTHONHASHSEED of the installation, kept in <data>/hashseed. Heap string. */
char *kenv_hash_seed(const char *data);

#endif
