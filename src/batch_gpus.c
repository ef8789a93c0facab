/* batch_gpus.c - see batch_gpus.h. fork and exec: this process has no device, no thread and no lock by then.
 * Easy to get wrong: between fork and exec only what is safe there is called, so everything is allocated before. */
#include "batch_gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Stream {
    int fd; /* -1: ended */
    char *text;
    size_t size, room;
} Stream;

typedef struct Child {
    int gpu;
    pid_t pid;        /* 0: none, or ended */
    Stream stream[2]; /* output, errors */
    char **argv, **environment;
    char shard[48], visible[96];
} Child;

/* --- the list --- */

Status batch_gpus_count(const char *list, int there, int gpu[BATCH_GPUS_MOST], int *count, Error *e) {
    *count = 0;
    for (const char *at = list;;) {
        char *end = NULL;
        errno = 0;
        long n = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (n < 0 || errno || (*end && *end != ',') || *count == BATCH_GPUS_MOST)
            return fail(e, ERR_USAGE, "--gpus: found \"%s\", expected numbers of GPUs such as 0,1", list);
        if (n >= there)
            return fail(e, ERR_USAGE, "--gpus: there is no GPU %ld here: found %d, counted from 0", n, there);
        for (int i = 0; i < *count; i++)
            if (gpu[i] == n) return fail(e, ERR_USAGE, "--gpus: %ld is given twice", n);
        gpu[(*count)++] = (int)n;
        if (!*end) return OK;
        at = end + 1;
    }
}

/* --- children --- */

/* The n-th entry of CUDA_VISIBLE_DEVICES, or n itself. */
static void visible_name(const char *visible, int n, char *out, size_t size) {
    const char *at = visible;
    for (int i = 0; at && i < n; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    if (at && *at)
        snprintf(out, size, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(at, ","), at);
    else
        snprintf(out, size, "CUDA_VISIBLE_DEVICES=%d", n);
}

static bool is_option(const char *arg, const char *name) {
    size_t n = strlen(name);
    return !strncmp(arg, name, n) && (!arg[n] || arg[n] == '=');
}

/* The command without --gpus and --shard, and with the child's own. */
static Status make_arguments(const BatchGpus *g, Child *c, int index, int count, Error *e) {
    int n = 0, own = 0;
    while (g->environment[n]) n++;
    c->argv = calloc((size_t)g->argc + 3, sizeof *c->argv);
    c->environment = calloc((size_t)n + 2, sizeof *c->environment);
    if (!c->argv || !c->environment) return fail(e, ERR_MEMORY, "out of memory");
    snprintf(c->shard, sizeof c->shard, "--shard=%d/%d", g->shard + g->shards * index, g->shards * count);
    visible_name(g->visible, c->gpu, c->visible, sizeof c->visible);
    c->argv[own++] = g->argv[0];
    c->argv[own++] = g->argv[1];
    c->argv[own++] = c->shard;
    c->argv[own++] = (char *)(uintptr_t) "--device=cuda";
    bool options = true;
    for (int i = 2; i < g->argc; i++) {
        options &= strcmp(g->argv[i], "--") != 0;
        if (options && (is_option(g->argv[i], "--gpus") || is_option(g->argv[i], "--shard")))
            i += !strchr(g->argv[i], '=');
        else
            c->argv[own++] = g->argv[i];
    }
    own = 0;
    for (int i = 0; i < n; i++)
        if (strncmp(g->environment[i], "CUDA_VISIBLE_DEVICES=", 21) != 0)
            c->environment[own++] = g->environment[i];
    c->environment[own] = c->visible;
    return OK;
}

static Status start(const BatchGpus *g, Child *c, Error *e) {
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    pid_t parent = getpid();
    for (int i = 0; i < 2; i++)
        if (pipe2(pipes[i], O_CLOEXEC))
            return fail(e, ERR_DEVICE, "--gpus: cannot make a pipe: %s", strerror(errno));
    c->pid = fork();
    if (!c->pid) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* not to be left alone when this process is killed */
        if (getppid() == parent && dup2(pipes[0][1], 1) == 1 && dup2(pipes[1][1], 2) == 2)
            execve(g->program, c->argv, c->environment);
        _exit(ERR_DEVICE); /* lint: allow-print (the child, before it is a program of its own) */
    }
    close(pipes[0][1]);
    close(pipes[1][1]);
    c->stream[0].fd = pipes[0][0];
    c->stream[1].fd = pipes[1][0];
    if (c->pid > 0) return OK;
    c->pid = 0;
    return fail(e, ERR_DEVICE, "--gpus: cannot start a process: %s", strerror(errno));
}

/* --- their lines --- */

static void pass_on(Stream *s, FILE *out, const char *prefix, bool ended) {
    size_t from = 0;
    for (char *stop; from < s->size && (stop = memchr(s->text + from, '\n', s->size - from));
         from = (size_t)(stop - s->text) + 1)
        fprintf(out, "%s%.*s\n", prefix, (int)(stop - s->text - (long)from), s->text + from);
    if (ended && from < s->size) {
        fprintf(out, "%s%.*s\n", prefix, (int)(s->size - from), s->text + from);
        from = s->size;
    }
    memmove(s->text, s->text + from, s->size - from);
    s->size -= from;
    fflush(out);
}

static Status take(Stream *s, FILE *out, const char *prefix, Error *e) {
    if (s->room - s->size < 4096) {
        size_t room = 2 * s->room + 8192;
        char *more = realloc(s->text, room);
        if (!more) return fail(e, ERR_MEMORY, "out of memory for a process's output");
        s->text = more;
        s->room = room;
    }
    ssize_t n = read(s->fd, s->text + s->size, s->room - s->size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return OK;
    if (n > 0) s->size += (size_t)n;
    pass_on(s, out, prefix, n <= 0);
    if (n > 0) return OK;
    close(s->fd);
    s->fd = -1;
    return OK;
}

static bool open_stream(const Child *c) { return c->stream[0].fd >= 0 || c->stream[1].fd >= 0; }

static void end_all(Child *child, int count) {
    for (int i = 0; i < count; i++)
        if (child[i].pid) kill(child[i].pid, SIGTERM);
}

/* The worst of all so far: the first failure's own code, or that pictures failed. */
static Status judge(const Child *c, int status, Status so_far, Error *e) {
    if (WIFSIGNALED(status))
        return so_far ? so_far
                      : fail(e, ERR_DEVICE,
                             "the process of GPU %d was ended by signal %d; --resume does what it left",
                             c->gpu, WTERMSIG(status));
    int code = WEXITSTATUS(status);
    if (!code || so_far) return so_far;
    return fail(e, (Status)code,
                code == ERR_SOME ? "the process of GPU %d reports failed pictures (above)"
                                 : "the process of GPU %d failed (above)",
                c->gpu);
}

static Status attend(const BatchGpus *g, Child *child, int count, FILE *out, FILE *err, Error *e) {
    Status result = OK;
    bool told = false;
    for (;;) {
        struct pollfd fds[2 * BATCH_GPUS_MOST];
        int n = 0, open = 0;
        for (int i = 0; i < count; i++)
            for (int k = 0; k < 2; k++)
                fds[n++] = (struct pollfd){.fd = child[i].stream[k].fd, .events = POLLIN};
        for (int i = 0; i < count; i++) open += open_stream(&child[i]);
        if (!open) return result;
        if (*g->interrupted && !told) end_all(child, count), told = true;
        if (poll(fds, (nfds_t)n, 500) < 0) continue; /* EINTR: the flag is looked at */
        for (int i = 0; i < count; i++) {
            char prefix[24];
            snprintf(prefix, sizeof prefix, "gpu %d: ", child[i].gpu);
            for (int k = 0; k < 2; k++)
                if (fds[2 * i + k].revents) TRY(take(&child[i].stream[k], k ? err : out, k ? prefix : "", e));
            if (open_stream(&child[i]) || !child[i].pid) continue;
            int status = 0;
            while (waitpid(child[i].pid, &status, 0) < 0 && errno == EINTR) continue;
            child[i].pid = 0;
            result = judge(&child[i], status, result, e);
            if (result && !g->keep_going && !told) end_all(child, count), told = true;
        }
    }
}

Status batch_gpus_run(const BatchGpus *g, FILE *out, FILE *err, Error *e) {
    int gpu[BATCH_GPUS_MOST], count;
    TRY(batch_gpus_count(g->list, g->there, gpu, &count, e));
    Child *child = calloc((size_t)count, sizeof *child);
    if (!child) return fail(e, ERR_MEMORY, "out of memory");
    Status s = OK;
    for (int i = 0; i < count; i++) child[i] = (Child){.gpu = gpu[i], .stream = {{.fd = -1}, {.fd = -1}}};
    for (int i = 0; s == OK && i < count; i++) s = make_arguments(g, &child[i], i, count, e);
    for (int i = 0; s == OK && i < count; i++) s = start(g, &child[i], e);
    if (s == OK) s = attend(g, child, count, out, err, e);
    for (int i = 0; i < count; i++) { /* only after an error of this process */
        if (child[i].pid) kill(child[i].pid, SIGTERM);
        for (int k = 0; k < 2; k++) {
            if (child[i].stream[k].fd >= 0) close(child[i].stream[k].fd);
            free(child[i].stream[k].text);
        }
        if (child[i].pid) waitpid(child[i].pid, NULL, 0);
        free(child[i].argv);
        free(child[i].environment);
    }
    free(child);
    if (!*g->interrupted) return s;
    *e = (Error){0}; /* how they ended is no news then */
    return fail(e, ERR_INTERRUPTED, "interrupted");
}
