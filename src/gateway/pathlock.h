/* Turns at paths: those who write a file, and those who must read it whole, come one after the
 * other. Loop thread only. */
#ifndef REITOS_GATEWAY_PATHLOCK_H
#define REITOS_GATEWAY_PATHLOCK_H

struct pathlocks;
struct pathlocks *pathlocks_new(void);
void pathlocks_free(struct pathlocks *l); /* those who still wait are forgotten */

/* Calls `held` when it is the caller's turn: at once (before this returns) or later. */
void pathlock_take(struct pathlocks *l, const char *path, void (*held)(void *), void *arg);
/* Ends the turn; the next one's `held` is called before this returns. */
void pathlock_drop(struct pathlocks *l, const char *path);
int pathlock_busy(const struct pathlocks *l, const char *path);

#endif
