/* gate.h - first sight: an EXACT fused variant has to show the unfused reference's bits before it runs for the first time.
 *
 * Once a signature and variant, on the call's own inputs, whole or the first and the last rows of them, both ways into
 * scratch memory, compared byte for byte. A difference unmounts the family in every component, for as long as the Gate
 * lives (one a process), and leaves a warning; the call and all later ones then run the reference. What cannot be compared
 * counts as different. BOUNDED families are none of its business: they differ on purpose.
 * With `verdicts` (verdicts.h) what earlier runs found on this machine with this build counts as seen.
 * Easy to get wrong: this runs ops and copies to the host, so it must be over before a graph is captured. */
#ifndef GATE_H
#define GATE_H

#include "fusion.h"

enum { GATE_BYTES = 16 << 20, GATE_PARTS = 8 }; /* scratch for both results of a slice */

typedef struct Gate {
    FirstSight base;             /* for Exec.first */
    Fusion *fusion[GATE_PARTS];  /* of all components */
    int fusions;
    Probed *good;                /* signatures that passed */
    int goods, good_cap;
    uint64_t looks;              /* comparisons made */
    struct Verdicts *verdicts;   /* of earlier runs; NULL: none */
    char warning[400];           /* of the last mismatch; "": none since gate_open */
} Gate;

void gate_open(Gate *g);
void gate_close(Gate *g);
/* Beyond GATE_PARTS components nothing is watched: false. */
bool gate_watch(Gate *g, Fusion *f);

#endif
