/* hub.h - from what the user gives as -m to a complete model folder on this machine.
 *
 * Accepts a folder, a snapshot folder of the Hugging Face cache (full of links), a cache folder models--OWNER--NAME, or
 * OWNER/NAME looked up in that cache. Nothing is ever fetched: what is missing is named, followed by the one
 * `hf download` line that brings it.
 * Easy to get wrong: a snapshot of an interrupted download has dangling links, which count as missing; a folder named
 * like OWNER/NAME wins over the cache. */
#ifndef HUB_H
#define HUB_H

#include "core/status.h"

/* Values of environment variables, NULL when unset; only the command line reads the environment. */
typedef struct HubEnv {
    const char *hub_cache; /* HF_HUB_CACHE */
    const char *hf_home;   /* HF_HOME */
    const char *xdg_cache; /* XDG_CACHE_HOME */
    const char *home;      /* HOME, or the user's folder where that is not set */
    const char *old_cache; /* HUGGINGFACE_HUB_CACHE */
    char *(*variable)(const char *name); /* getenv, for variables inside those values; NULL: they stay as they are */
} HubEnv;

/* Where the cache lies, as huggingface_hub's constants.py has it: hub_cache, else old_cache, else hf_home/hub, else
 * xdg_cache/huggingface/hub, else home/.cache/huggingface/hub, with "~", "~USER", "$NAME" and "${NAME}" in them replaced (an
 * empty value counts as none). malloc'd; NULL when nothing says or out of memory. */
char *hub_cache_folder(const HubEnv *env);

/* The path that `model` names: an existing path as it is, or a snapshot. malloc'd. ERR_MODEL says where it looked and how
 * to download it. What lies there is not looked at. */
Status hub_find(const HubEnv *env, const char *model, char **path, Error *e);

/* hub_find, then recognise_model, then hub_complete: the whole way for -m. *folder is malloc'd. */
Status hub_resolve(const HubEnv *env, const char *model, char **folder, Error *e);

/* Every file that a FLUX.1 folder needs is there. ERR_MODEL names the first missing ones and the download line; the
 * repository comes from the cache path, else it is the base model that the folder looks like. */
Status hub_complete(const char *folder, Error *e);

#endif
