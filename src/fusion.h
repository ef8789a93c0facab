/* fusion.h - which families of fused kernels a component runs with: mounted all or nothing, on a copy of its op table.
 *
 * A dry run records every call of a component as a Site: the model's name for the place, and the arguments. To mount a
 * family is to copy the table, prepend the family's variants, ask each variant's static guards (Impl.accepts) about every
 * site of its op, probe it there, and only then to assign the copy. One refusal: the copy is dropped, the component stays
 * on its reference path, and `why` names site and reason. A site that a variant passes on, with no reason, is no refusal:
 * its calls find the next variant. Models know nothing of it.
 * Not the choice of what a quality wants (fusion_choose does that for all components) and not the check of bits (gate.h).
 * Easy to get wrong: whatever changes the table raises its epoch, and nothing resolved or captured under another epoch may
 * run; a mount that changes nothing keeps it. */
#ifndef FUSION_H
#define FUSION_H

#include "kernels/registry.h"
#include "slice.h"

enum { FUSION_FAMILIES = 32, FUSION_SITES_MAX = 4096 };

typedef struct Site {
    const char *name; /* the model's, or NULL */
    OpId op;
    uint64_t key;     /* ops_signature */
    Args args;        /* addresses are the dry run's */
} Site;

/* What became of a family in a component. */
typedef struct Mount {
    const Family *family;
    bool wanted;      /* by the last job */
    bool mounted;
    bool chosen;      /* what the last fusion_mount said; stays when it is unmounted */
    bool banned;      /* failed at first sight: not in this process again */
    bool refused;     /* a site refused it */
    char why[400];    /* when it was wanted and is not mounted: one line */
} Mount;

typedef struct Probed {
    uint64_t key;
    const Impl *impl;
} Probed;

typedef struct Fusion {
    const char *part; /* the component's folder */
    Ops *ops;         /* its table, the one that runs */
    Ops reference;    /* the same without families */
    Site *site;
    int sites, site_cap;
    Mount mount[FUSION_FAMILIES];
    int mounts;
    Probed *probed;   /* what passed a probe */
    int probes, probe_cap;
    struct Verdicts *verdicts; /* of earlier runs: what ran as an EXACT variant then is not probed; NULL: none */
} Fusion;

/* ops: the component's table, filled, without families; it stays where it is. */
void fusion_init(Fusion *f, const char *part, Ops *ops);
void fusion_free(Fusion *f);

/* Before a dry run, and at each of its calls. Sites of equal name and signature count once. */
void fusion_forget_sites(Fusion *f);
Status fusion_record(Fusion *f, OpId op, const void *args, const char *name, Error *e);

/* Mounts the family, or leaves the component without it and says why in its Mount; a family that is mounted is asked
 * again, since sites may be new. device_exec: an Exec of the device itself (not dry), for probes. A family whose ops the
 * component never calls, or that passes on all of them, is not mounted, and that is no refusal. Errors are failures of this
 * program, never refusals. */
Status fusion_mount(Fusion *f, const Family *family, const Exec *device_exec, Error *e);
void fusion_unmount(Fusion *f, const Family *family);
void fusion_unmount_all(Fusion *f);
/* Unmounts it for good. */
void fusion_ban(Fusion *f, const Family *family, const char *why);

/* NULL when it was never wanted here. */
const Mount *fusion_find(const Fusion *f, const Family *family);
/* The family that a variant belongs to; NULL: a reference. */
const Family *fusion_family_of(const Fusion *f, const Impl *impl);

/* One bit a family: what a quality wants. EXACT families at both, BOUNDED ones only when `high`. list: NULL or "all",
 * "none", or names separated by commas. ERR_USAGE names what the quality does not have. */
Status fusion_choose(const Family *families, int count, bool high, const char *list, uint32_t *wanted, Error *e);

#endif
