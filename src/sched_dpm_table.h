/* sched_dpm_table.h - where PyTorch's log and exp of one f32 (MKL's vector mathematics) differ from the nearest f32, for the
 * arguments that sched_dpm.c has with flow_shift 8 and 1 to 100 steps. Written by scripts/dump_dpm.py into sched_dpm_table.c.
 * Not for other arguments: there nothing was recorded. */
#ifndef SCHED_DPM_TABLE_H
#define SCHED_DPM_TABLE_H

#include <stdint.h>

/* Arguments (bits of the f32, sorted) whose recorded value is the next f32 above, or below, the nearest. */
typedef struct SchedDpmFixes {
    const uint32_t *above, *below;
    int above_count, below_count;
} SchedDpmFixes;

extern const SchedDpmFixes SCHED_DPM_LOG, SCHED_DPM_EXP;

#endif
