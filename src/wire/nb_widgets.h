/* The state of a kernel's ipywidgets, as a notebook keeps it so that widgets are shown without a
 * kernel: metadata.widgets["application/vnd.jupyter.widget-state+json"], version 2.0 (ipywidgets'
 * packages/schema, v2.state). Fed with the kernel's comm messages. One thread at a time.
 */
#ifndef REITOS_WIRE_NB_WIDGETS_H
#define REITOS_WIRE_NB_WIDGETS_H

#include "wire/jmsg.h"

#define NB_WIDGETS_MAX 10000 /* models; further ones are not kept */

struct nb_widgets;
struct nb_widgets *nb_widgets_new(void);
struct nb_widgets *nb_widgets_free(struct nb_widgets *w); /* NULL-safe, returns NULL */
/* Any iopub message; what is no comm message of a widget is passed over. 1 when a state changed. */
int nb_widgets_feed(struct nb_widgets *w, struct jmsg *m);
/* Puts the states into the notebook's metadata; where there are none the notebook stays as it is.
 * Binary properties are written in base64. */
void nb_widgets_put(const struct nb_widgets *w, json_t *notebook);

#endif
