/* Events beyond gw.h. Loop thread only. */
#ifndef REITOS_GATEWAY_EVENTS_H
#define REITOS_GATEWAY_EVENTS_H

#include "gateway/gw.h"

size_t events_subscribers(const struct gw *gw);

#endif
