/* The callbacks that join http.h to the route tables; `arg` is the struct gw. Loop thread only. */
#ifndef REITOS_GATEWAY_DISPATCH_H
#define REITOS_GATEWAY_DISPATCH_H

#include "gateway/gw.h"

int dispatch_filter(void *arg, struct http_req *r);
void dispatch_handle(void *arg, struct http_req *r);
int dispatch_upgrade(void *arg, struct http_req *r, const struct ws_ops **ops, void **ws_arg);
void dispatch_done(void *arg, struct http_req *r, int status, double seconds);

#endif
