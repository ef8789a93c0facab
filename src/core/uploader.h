/* uploader.h - uploads to a CUDA device beside its computation: a stream of its own, pinned buffers, and the threads that
 * fill them from mapped files (feeder.h). Only with HAVE_CUDA; device_cuda.c is the one user.
 *
 * Easy to get wrong: cudaStreamWaitEvent on an event that was not recorded yet waits for nothing, so uploader_wait first
 * blocks the host until the last copy was queued. Never call these while the compute stream is being captured. */
#ifndef UPLOADER_H
#define UPLOADER_H

#include "core/device.h"

typedef struct Uploader Uploader;

/* compute: the cudaStream_t that uploads are ordered with. */
Status uploader_open(int ordinal, void *compute, Uploader **out, Error *e);
void uploader_close(Uploader *u); /* NULL is fine */
/* As Device.upload_start and upload_wait. */
Status uploader_start(Uploader *u, const Fill *fill, Ticket *out, Error *e);
Status uploader_wait(Uploader *u, Ticket t, Error *e);
/* Blocks until every copy that was queued has ended. NULL is fine. */
void uploader_drain(Uploader *u);

#endif
