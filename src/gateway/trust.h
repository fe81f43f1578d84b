/* Notebooks whose output may run scripts in the page: those that were saved with every cell
 * trusted, or that the user trusted by name. Known by the SHA-256 of the file, so copies and
 * renames stay trusted and a change from outside does not. Kept in the control records
 * ("trust/<hash>"); the newest TRUST_MAX are remembered. */
#ifndef REITOS_GATEWAY_TRUST_H
#define REITOS_GATEWAY_TRUST_H

#define TRUST_MAX 65536

struct meta;
struct trust;

struct trust *trust_new(struct meta *meta); /* NULL meta: in memory only */
void trust_free(struct trust *t);
void trust_load(struct trust *t, void (*done)(void *), void *arg); /* loop thread */
/* Any thread. */
int trust_has(struct trust *t, const char *hash);
void trust_add(struct trust *t, const char *hash);
/* Writes what was added; loop thread. */
void trust_store(struct trust *t);

#endif
