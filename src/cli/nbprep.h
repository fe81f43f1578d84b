/* Getting a notebook ready to be run: nbformat 4.5 with cell ids, and parameters as papermill
 * injects them. Pure functions on JSON trees. */
#ifndef REITOS_CLI_NBPREP_H
#define REITOS_CLI_NBPREP_H

#include "base/json.h"

/* Brings a checked notebook to nbformat 4.5: the minor version, an id for each cell that lacks a
 * valid or unique one, outputs and execution_count of code cells. */
void nbprep_upgrade(json_t *notebook);

/* Takes "name=value" apart; *ret_name and *ret_literal are heap strings. The value becomes a
 * Python literal: numbers, true, false and none (or null) in any of Python's and JSON's spellings,
 * JSON lists, objects and quoted strings; anything else is a string as it stands. ERR_INVALID. */
int nbprep_param(const char *text, char **ret_name, char **ret_literal, struct err *e) WARN_UNUSED;

/* Puts a cell tagged "injected-parameters" in: in place of an earlier one, else after the cell
 * tagged "parameters", else at the top. `params` is an object name -> literal (borrowed). */
void nbprep_inject(json_t *notebook, const json_t *params);

int nbprep_tagged(const json_t *cell, const char *tag);

/* Kernelspec that the notebook names, NULL when it names none. */
const char *nbprep_kernel(const json_t *notebook);

#endif
