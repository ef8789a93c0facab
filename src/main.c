/* main.c - the process: signals, streams, dispatch to a subcommand, the one error line, the exit code.
 *
 * With cli.c the only place that prints of its own accord, exits or reads the environment. Everything a subcommand does
 * is in the file of its name.
 * Easy to get wrong: a signal that was ignored at the start (nohup) stays ignored; the second signal exits at once, after
 * removing the temporary file in flight. */
#include "ab.h"
#include "batch.h"
#include "batch_gpus.h"
#include "bench.h"
#include "cli.h"
#include "compare.h"
#include "completion.h"
#include "core/device_cuda.h"
#include "core/file.h"
#include "decode.h"
#include "generate.h"
#include "hub.h"
#include "inspect_model.h"
#include "manual.h"
#include "media/png.h"
#include "meta.h"
#include "noise.h"
#include "selftest.h"
#include "sigmas.h"
#include "text/tok.h"
#include "verify.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static volatile int interrupted; /* lint: allow-static (a signal handler can reach nothing else) */

static void on_signal(int number) {
    static const char WORDS[] = "\r\033[Kditto: interrupted, at once\n"; /* over a terminal's progress line */
    (void)number;
    if (interrupted) {
        file_remove_partial();
        const size_t skip = isatty(2) ? 0 : 4;
        ssize_t said = write(2, WORDS + skip, sizeof WORDS - 1 - skip);
        (void)said; /* no stream: the same end */
        _exit(ERR_INTERRUPTED);
    }
    interrupted = 1;
}

static void catch_signals(void) {
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        struct sigaction old, new = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&new.sa_mask);
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &new, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a write error with a text */
}

/* A program started with a closed stream would get its output file as descriptor 0, 1 or 2 and print into it. */
static void keep_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) _exit(ERR_IO);
}

static Status compare(const Cli *cli, Error *e) {
    CompareOptions options = {.limits = {.has_min_psnr = cli->min_psnr >= 0,
                                         .has_min_ssim = cli->min_ssim >= 0,
                                         .has_min_snr = cli->min_snr >= 0,
                                         .has_max_abs = cli->max_abs >= 0,
                                         .min_psnr = cli->min_psnr,
                                         .min_ssim = cli->min_ssim,
                                         .min_snr = cli->min_snr,
                                         .max_abs = cli->max_abs},
                              .json = cli->json,
                              .diff = cli->diff,
                              .overwrite = cli->overwrite};
    return compare_files(cli->args[0], cli->args[1], &options, stdout, e);
}

static HubEnv hub_environment(void) {
    const char *home = getenv("HOME");
    const struct passwd *user = home ? NULL : getpwuid(getuid());
    return (HubEnv){.hub_cache = getenv("HF_HUB_CACHE"),
                    .old_cache = getenv("HUGGINGFACE_HUB_CACHE"),
                    .hf_home = getenv("HF_HOME"),
                    .xdg_cache = getenv("XDG_CACHE_HOME"),
                    .home = user ? user->pw_dir : home,
                    .variable = getenv};
}

static Status model_folder(const char *model, char **folder, Error *e) {
    const HubEnv env = hub_environment();
    return hub_resolve(&env, model, folder, e);
}

/* NAME in ditto's folder of the cache, malloc'd; NULL where the environment does not say where that is. */
static Status cache_file(const char *name, char **out, Error *e) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool said = cache && cache[0] == '/';
    *out = NULL;
    if (!said && !(home && home[0])) return OK;
    if (asprintf(out, "%s%s/ditto/%s", said ? cache : home, said ? "" : "/.cache", name) < 0) {
        *out = NULL;
        return fail(e, ERR_MEMORY, "out of memory");
    }
    return OK;
}

/* Where tuned products and verdicts are kept. */
static Status find_cache(Cli *cli, Error *e) {
    bool set = cli->command == COMMAND_AB && !cli->tuned; /* a side of ab may ask for it */
    TRY(cache_file("verdicts.tsv", &cli->verdict_file, e));
    if (!cli->tuned && !cli->tune && !set) return OK;
    TRY(cache_file("tuned.tsv", &cli->tuned_file, e));
    if (!cli->tuned_file && !set)
        return fail(e, ERR_USAGE, "%s: neither XDG_CACHE_HOME nor HOME says where the file is", cli->tune ? "--tune" : "--tuned");
    return OK;
}

static Status generate(const Cli *cli, Error *e) {
    catch_signals(); /* the others run with the system's defaults: they keep no partial file */
    char *folder = NULL;
    TRY(model_folder(cli->model, &folder, e));
    Status status = generate_run(cli, folder, stdout, stderr, isatty(2) != 0, &interrupted, e);
    free(folder);
    return status;
}

static Status ab(const Cli *cli, Error *e) {
    catch_signals();
    const HubEnv env = hub_environment();
    return ab_run(cli, &env, stdout, stderr, isatty(2) != 0, &interrupted, e);
}

static Status batch_by_gpus(const Cli *cli, int argc, char **argv, Error *e) {
    int there;
    if (cli->report) return fail(e, ERR_USAGE, "--report: describes one process, so not with --gpus");
    if (cli->device && strcmp(cli->device, "cuda") != 0) return fail(e, ERR_USAGE, "--gpus: not with --device %s", cli->device);
    if (device_cuda_count(&there, e) != OK) return because(e, "--gpus");
    const BatchGpus gpus = {.program = "/proc/self/exe", .argc = argc, .argv = argv, .environment = environ,
                            .visible = getenv("CUDA_VISIBLE_DEVICES"), .list = cli->gpus, .there = there, .shard = cli->shard,
                            .shards = cli->shards, .keep_going = cli->keep_going, .interrupted = &interrupted};
    return batch_gpus_run(&gpus, stdout, stderr, e);
}

static Status batch(Cli *cli, int argc, char **argv, Error *e) {
    catch_signals();
    if (cli->shard_slurm)
        TRY(batch_slurm(cli, getenv("SLURM_ARRAY_TASK_ID"), getenv("SLURM_ARRAY_TASK_MIN"), getenv("SLURM_ARRAY_TASK_COUNT"),
                        getenv("SLURM_ARRAY_TASK_STEP"), e));
    if (cli->gpus) return batch_by_gpus(cli, argc, argv, e);
    const HubEnv env = hub_environment();
    return batch_run(cli, &env, stdout, stderr, isatty(2) != 0, &interrupted, e);
}

static Status decode(const Cli *cli, Error *e) {
    catch_signals();
    char *folder = NULL, *recorded = NULL;
    if (!cli->model) TRY(verify_model(cli->args[0], &recorded, e));
    Status status = model_folder(cli->model ? cli->model : recorded, &folder, e);
    if (status == OK) status = decode_run(cli, folder, stdout, stderr, isatty(2) != 0, &interrupted, e);
    free(recorded);
    free(folder);
    return status;
}

static Status tokens(const Cli *cli, Error *e) {
    if (!cli->model) {
        Tokenizer *t = NULL;
        TRY(tok_open(cli->args[0], &t, e));
        Status status = tok_lines(t, stdin, stdout, !cli->no_special, e);
        tok_close(t);
        return status;
    }
    char *folder = NULL;
    Pipeline *p = NULL;
    TRY(model_folder(cli->model, &folder, e));
    Status status = pipeline_open(
        &(PipelineOptions){.model = folder, .text_encoder = cli->text_encoder, .interrupted = &interrupted}, &p, e);
    if (status == OK) status = pipeline_tokens(p, cli->prompt, stdout, e);
    pipeline_close(p);
    free(folder);
    return status;
}

/* A file with a picture's, a film's or a sound's suffix, or a PNG under any name. */
static bool is_media(const char *path) {
    static const char *const SUFFIXES[] = {".png", ".mp4", ".mkv", ".mov", ".webm", ".wav"};
    FileMap map = {0};
    if (file_is_dir(path) || file_map(path, &map, NULL) != OK) return false;
    bool media = png_is(map.data, map.size);
    file_unmap(&map);
    const char *suffix = strrchr(path, '.');
    for (size_t i = 0; suffix && i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) media = media || !strcasecmp(suffix, SUFFIXES[i]);
    return media;
}

static Status inspect(const Cli *cli, Error *e) {
    if (is_media(cli->args[0])) return meta_print(cli->args[0], stdout, cli->json, e);
    const HubEnv env = hub_environment();
    char *path;
    TRY(hub_find(&env, cli->args[0], &path, e)); /* a path, or OWNER/NAME in the local hub cache */
    Status status = inspect_model_path(path, stdout, cli->json, e);
    free(path);
    return status;
}

static Status selftest(const Cli *cli, Error *e) {
    char *folder = NULL;
    TRY(model_folder(cli->model, &folder, e));
    SelftestOptions options = {.folder = folder,
                               .device = cli->device,
                               .dtype = cli->dtype,
                               .vram = cli->vram,
                               .sync = cli->sync,
                               .manifest = cli->manifest,
                               .record = cli->record,
                               .overwrite = cli->overwrite,
                               .quiet = cli->verbosity < 0,
                               .interrupted = &interrupted};
    Status status = selftest_run(&options, stdout, stderr, e);
    free(folder);
    return status;
}

static Status bench(const Cli *cli, Error *e) {
    char *folder = NULL;
    TRY(model_folder(cli->model, &folder, e));
    BenchOptions options = {.what = cli->arg_count ? cli->args[0] : NULL,
                            .folder = folder,
                            .text_encoder = cli->text_encoder,
                            .device = cli->device,
                            .dtype = cli->dtype,
                            .vae_dtype = cli->vae_dtype,
                            .vram = cli->vram,
                            .quality = cli->quality,
                            .families = cli->families,
                            .no_graphs = cli->no_graphs,
                            .width = cli->width,
                            .height = cli->height,
                            .frames = cli->frames,
                            .steps = cli->steps,
                            .upscale = cli->upscale,
                            .guide = cli->guide,
                            .runs = cli->runs,
                            .warmup = cli->warmup < 0 ? 2 : cli->warmup,
                            .serve = cli->serve,
                            .profile = cli->profile,
                            .tuned = cli->tuned_file,
                            .verdicts = cli->no_verdicts ? NULL : cli->verdict_file,
                            .tune = cli->tune,
                            .err = stderr,
                            .interrupted = &interrupted};
    Status status = bench_run(&options, stdin, stdout, e);
    free(folder);
    return status;
}

static Status verify(const Cli *cli, Error *e) {
    char *recorded = NULL, *folder = NULL;
    if (!cli->model) TRY(verify_model(cli->args[0], &recorded, e));
    Status status = model_folder(cli->model ? cli->model : recorded, &folder, e);
    if (status != OK && recorded) because(e, "%s names its model; if it lies elsewhere give -m DIR", cli->args[0]);
    VerifyOptions options = {.file = cli->args[0],
                             .folder = folder,
                             .text_encoder = cli->text_encoder,
                             .image = cli->image,
                             .device = cli->device,
                             .vram = cli->vram,
                             .json = cli->json,
                             .quiet = cli->verbosity < 0,
                             .interrupted = &interrupted};
    if (status == OK) status = verify_run(&options, stdout, stderr, e);
    free(folder);
    free(recorded);
    return status;
}

/* The CPU's pipeline of a model, for what depends on no device. */
static Status open_model(const Cli *cli, Pipeline **p, Error *e) {
    char *folder = NULL;
    TRY(model_folder(cli->model, &folder, e));
    Status status = pipeline_open(
        &(PipelineOptions){.model = folder, .text_encoder = cli->text_encoder, .device = "cpu", .dtype = cli->dtype,
                           .interrupted = &interrupted}, p, e);
    free(folder);
    return status;
}

static Job sized_job(const Cli *cli) {
    return (Job){.prompt = "", .width = cli->width, .height = cli->height, .frames = cli->frames, .steps = cli->steps,
                 .match = cli->match, .seed = cli->seed};
}

static Status sigmas(const Cli *cli, Error *e) {
    Pipeline *p = NULL;
    Job job = sized_job(cli);
    TRY(open_model(cli, &p, e));
    Status status = sigmas_print(p, &job, cli->json, stdout, e);
    pipeline_close(p);
    return status;
}

static Status noise(const Cli *cli, Error *e) {
    Pipeline *p = NULL;
    Job job = sized_job(cli);
    NoiseOptions options = {.seed = cli->seed,
                            .rank = cli->shape_rank,
                            .dtype = cli->dtype ? cli->dtype : BF16,
                            .output = cli->output,
                            .overwrite = cli->overwrite,
                            .json = cli->json};
    memcpy(options.shape, cli->shape, sizeof options.shape);
    if (cli->model) TRY(open_model(cli, &p, e));
    Status status = noise_print(&options, p, &job, stdout, e);
    pipeline_close(p);
    return status;
}

static Status dispatch(Cli *cli, int argc, char **argv, Error *e) {
    switch (cli->command) {
    case COMMAND_GENERATE: return generate(cli, e);
    case COMMAND_BATCH: return batch(cli, argc, argv, e);
    case COMMAND_DECODE: return decode(cli, e);
    case COMMAND_COMPARE: return compare(cli, e);
    case COMMAND_AB: return ab(cli, e);
    case COMMAND_INSPECT: return inspect(cli, e);
    case COMMAND_TOKENS: return tokens(cli, e);
    case COMMAND_SELFTEST: return selftest(cli, e);
    case COMMAND_BENCH: return bench(cli, e);
    case COMMAND_VERIFY: return verify(cli, e);
    case COMMAND_SIGMAS: return sigmas(cli, e);
    case COMMAND_NOISE: return noise(cli, e);
    case COMMAND_COMPLETION: return completion_print(cli->args[0], stdout, e);
    case COMMAND_MAN: manual_print(stdout); return OK;
    case COMMAND_COUNT: break;
    }
    return fail(e, ERR_USAGE, "ditto %s is not part of this build", cli_command_name(cli->command));
}

/* OpenMP's threads spin for milliseconds between loops unless told otherwise before the program starts: on a machine
 * that does anything else meanwhile a picture then takes ten times as long. Whoever sets the variable keeps it. */
static void wait_passively(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1)) return;
    execv("/proc/self/exe", argv); /* returns only where there is no /proc */
}

int main(int argc, char **argv) {
    wait_passively(argv);
    keep_streams();
    Error e = {0};
    Cli cli;
    Status status = cli_parse(argc, argv, &cli, &e);
    if (status == OK) {
        if (cli.version)
            printf("ditto %s\n", CLI_VERSION);
        else if (cli.help_all)
            cli_help_all(stdout);
        else if (cli.help)
            cli_help(cli.command, stdout);
        else if ((status = find_cache(&cli, &e)) == OK)
            status = dispatch(&cli, argc, argv, &e);
    }
    cli_free(&cli);
    if ((fflush(stdout) || ferror(stdout)) && status == OK)
        status = fail(&e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
    if (status != OK && e.text[0]) fprintf(stderr, "ditto: %s\n", e.text);
    return status;
}
