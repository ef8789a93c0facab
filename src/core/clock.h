/* clock.h - seconds of a clock that only goes forward, for durations. Not the time of day, not a device's clock
 * (Device.mark). Easy to get wrong: what a device was given to do may not have ended when its call returned. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

static inline double clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
