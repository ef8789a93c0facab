/* unary_tables.c - placeholder: no recording packed yet, so every entry is the correctly rounded formula.
 * scripts/pack_unary.py replaces this file. */
#include "kernels/unary.h"

const UnaryFixes unary_tables_fixes[UNARY_COUNT] = {{0, 0}};

const char unary_tables_source[] = "no recording: correctly rounded formulas";
