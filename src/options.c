/* options.c - see options.h: the table, the subcommands, look-up by name, and the nearest name to a mistyped one.
 * Easy to get wrong: a row without the right bits in `commands` does not exist for that subcommand, not even in --help. */
#include "options.h"

#include "bench.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    ONE = 1 << COMMAND_GENERATE,
    BAT = 1 << COMMAND_BATCH,
    RUN = ONE | BAT,         /* of the whole run */
    GEN = RUN | OPTIONS_JOB, /* of a picture, so of each job too */
    ABT = 1 << COMMAND_AB,
    PIC = GEN | ABT | OPTIONS_SET, /* of what a picture shows and how it is computed */
    DEC = 1 << COMMAND_DECODE,
    CMP = 1 << COMMAND_COMPARE,
    INS = 1 << COMMAND_INSPECT,
    TOK = 1 << COMMAND_TOKENS,
    SLF = 1 << COMMAND_SELFTEST,
    BEN = 1 << COMMAND_BENCH,
    VER = 1 << COMMAND_VERIFY,
    SIG = 1 << COMMAND_SIGMAS,
    NOI = 1 << COMMAND_NOISE,
    ALL = OPTIONS_ALL
};

#define AT(f) offsetof(Cli, f)

static const Option OPTIONS[] = {
    {"model", 'm', KIND_TEXT, PIC | DEC | TOK | SLF | BEN | VER | SIG | NOI, "DIR",
     "model: diffusers folder, hub snapshot folder, OWNER/NAME in the hub\ncache, or LTX-2's original single file",
     AT(model), 0, 0, NULL},
    {"text-encoder", 0, KIND_TEXT, PIC | DEC | TOK | BEN | VER | SIG | NOI, "DIR",
     "LTX-2 in one file: diffusers folder of its text encoder and tokenizer\n(default: the folder that the file lies in)",
     AT(text_encoder), 0, 0, NULL},
    {"prompt", 'p', KIND_PROMPT, GEN | TOK | ABT, "TEXT", "what to draw (UTF-8; may be empty)", AT(prompt), 0, 0,
     NULL},
    {"negative-prompt", 'n', KIND_PROMPT, PIC, "TEXT", "what to avoid; used when --cfg-scale is above 1 (Z-Image: 0)",
     AT(negative_prompt), 0, 0, NULL},
    {"output", 'o', KIND_TEXT, GEN | DEC | NOI, "NAME",
     "PNG file, or a folder; %d or %03d becomes the picture's number\n"
     "(default: ./TITLE-SEED.png); of models that make clips MP4 or MKV,\n"
     "or %04d.png for a PNG a frame; noise: a safetensors file",
     AT(output), 0, 0, NULL},
    {"width", 'W', KIND_INT, PIC | DEC | BEN | SIG | NOI, "N", "pixels, a multiple of 16, LTX-2: 32 (default: the model's)",
     AT(width), 16, 16384, NULL},
    {"height", 'H', KIND_INT, PIC | DEC | BEN | SIG | NOI, "N", "pixels, a multiple of 16, LTX-2: 32 (default: the model's)",
     AT(height), 16, 16384, NULL},
    {"frames", 0, KIND_INT, PIC | DEC | BEN | SIG | NOI, "N", "frames of a clip (default: the model's)", AT(frames), 1, 1000000,
     "num-frames"},
    {"seconds", 0, KIND_REAL, PIC, "X", "instead: as many frames as come nearest to X seconds", AT(seconds), 0.001,
     100000, NULL},
    {"fps", 0, KIND_RATE, PIC | DEC, "RATE", "frames a second: 24, 23.976, 24000/1001 (default: the model's)", AT(fps), 0, 0,
     "frame-rate"},
    {"codec", 0, KIND_CODEC, GEN | DEC, "h264|x264rgb|ffv1",
     "of a video file (default: MP4 h264, MKV ffv1); ffv1, and x264rgb\nwithout --crf, are lossless", AT(codec), 0, 0, NULL},
    {"crf", 0, KIND_INT, GEN | DEC, "N", "quality of h264 and x264rgb, 0 (best) to 51 (default: 17; x264rgb: 0)",
     AT(crf), 0, 51, NULL},
    {"image", 'i', KIND_TEXT, PIC | VER, "FILE",
     "begin from this picture (PNG or JPEG), resized to the size drawn\n"
     "(LTX-2: FILE:FRAME:STRENGTH, latent frames from 0, -1 the last)",
     AT(image), 0, 0, NULL},
    {"image-crf", 0, KIND_INT, PIC, "N", "LTX-2: quality of the H.264 that the picture passes through, 0: none\n(default: 33)",
     AT(image_crf), 0, 51, NULL},
    {"strength", 0, KIND_REAL, PIC, "X", "share of the steps that run on the image, 0 to 1 (default: 0.6)", AT(strength), 0,
     1, NULL},
    {"steps", 0, KIND_INT, PIC | BEN | SIG, "N", "denoising steps, 1 to 10000 (default: the model's)", AT(steps), 1,
     10000, "num-inference-steps"},
    {"upscale", 0, KIND_INT, PIC | BEN, "2", "LTX-2: draw at half the width and height first, then enlarge and refine",
     AT(upscale), 2, 2, NULL},
    {"seed", 0, KIND_SEED, PIC | NOI, "N", "0 to 2^64-1; -1 or none: drawn, printed and stored", AT(seed), 0, 0,
     NULL},
    {"count", 0, KIND_INT, GEN, "N", "pictures to make, with seeds SEED, SEED+1, ...", AT(count), 1, 100000,
     NULL},
    {"guidance", 0, KIND_REAL, PIC, "X", "distilled guidance, for models that take it as an input",
     AT(guidance), 0, 1000, NULL},
    {"cfg-scale", 0, KIND_REAL, PIC, "X", "classifier-free guidance; above 1 with -n: two passes a step",
     AT(cfg_scale), 0, 1000, "true-cfg-scale"},
    {"cfg-normalization", 0, KIND_REAL, PIC, "X", "Z-Image: guidance may let the norm grow to X times at most; 0: any",
     AT(cfg_normalization), 0, 1000, NULL},
    {"cfg-truncation", 0, KIND_REAL, PIC, "X", "Z-Image: no guidance after time X, 0 (noise) to 1 (default: never)",
     AT(cfg_truncation), 0, 1, NULL},
    {"stg-scale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: away from a pass with perturbed self attention; 0: off",
     AT(guide[GUIDE_STG]), 0, 1000, NULL},
    {"stg-blocks", 0, KIND_TEXT, PIC, "N,N...", "LTX-2: the blocks whose self attention is perturbed (default: 28)",
     AT(stg_blocks), 0, 0, "spatio-temporal-guidance-blocks"},
    {"modality-scale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: away from a pass where picture and sound are apart; 1: off",
     AT(guide[GUIDE_MODALITY]), 0, 1000, NULL},
    {"guidance-rescale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: how much of the unguided deviation comes back, 0 to 1",
     AT(guide[GUIDE_RESCALE]), 0, 1, NULL},
    {"audio-cfg-scale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: --cfg-scale of the sound", AT(guide[GUIDE_AUDIO_CFG]), 0, 1000,
     "audio-guidance-scale"},
    {"audio-stg-scale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: --stg-scale of the sound", AT(guide[GUIDE_AUDIO_STG]), 0,
     1000, NULL},
    {"audio-modality-scale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: --modality-scale of the sound",
     AT(guide[GUIDE_AUDIO_MODALITY]), 0, 1000, NULL},
    {"audio-guidance-rescale", 0, KIND_REAL, PIC | BEN, "X", "LTX-2: --guidance-rescale of the sound",
     AT(guide[GUIDE_AUDIO_RESCALE]), 0, 1, NULL},
    {"motion-score", 0, KIND_INT, PIC, "N", "SANA-Video: how much shall move, said behind the prompt", AT(motion_score), 1, 1000,
     NULL},
    {"bin", 0, KIND_SWITCH, PIC, NULL,
     "SANA-Video: make the clip in the trained size whose shape is nearest,\nthen scale and crop it to the size asked for",
     AT(bin), 0, 0, "use-resolution-binning"},
    {"match", 0, KIND_TEXT, PIC | SIG | NOI, "diffusers|official",
     "LTX-2: whose code to agree with; official: its authors' own, where that\ndiffers and is covered (default: diffusers)",
     AT(match), 0, 0, NULL},
    {"layout", 0, KIND_TEXT, PIC, "rows|reference",
     "SANA-Video: how the residual lies in memory; reference: as diffusers\nhas it, the same bits by its moves (default: rows)",
     AT(layout), 0, 0, NULL},
    {"guidance-scale", 0, KIND_REAL, PIC, "X",
     "what the model's diffusers pipeline calls guidance_scale\n(FLUX: --guidance; Z-Image: --cfg-scale)", AT(guidance_scale), 0,
     1000, NULL},
    {"max-sequence-length", 0, KIND_INT, PIC, "N", "tokens of the long text encoder (default: the model's)",
     AT(max_sequence_length), 1, 8192, NULL},
    {"device", 0, KIND_DEVICE, PIC | DEC | SLF | BEN | VER, "cpu|cuda", "where to compute (default: chosen)", AT(device),
     0, 0, NULL},
    {"vram", 0, KIND_BYTES, PIC | DEC | SLF | BEN | VER, "SIZE",
     "most GPU memory to use, such as 24G or 800M, binary units\n(default: what is free); weights that do not fit take turns",
     AT(vram), 0, 0, NULL},
    {"dtype", 0, KIND_DTYPE, PIC | DEC | SLF | BEN | SIG | NOI, "bf16|f32", "number format of the computation (default: bf16)",
     AT(dtype), 0, 0, NULL},
    {"vae-dtype", 0, KIND_DTYPE, PIC | DEC | BEN, "bf16|f32",
     "number format of the decoder, where the model has one of its own\n(default: the model's; SANA-Video: f32, at 720p --dtype)",
     AT(vae_dtype), 0, 0, NULL},
    {"quality", 0, KIND_QUALITY, PIC | BEN, "lossless|high",
     "high: also fused kernels that leave roundings out (default: lossless)", AT(quality), 0, 0, NULL},
    {"families", 0, KIND_TEXT, PIC | BEN, "none|all|LIST",
     "which fused kernels of that quality, names with commas between\n(default: all)", AT(families), 0, 0, NULL},
    {"rng", 0, KIND_RNG, PIC, "cpu", "whose noise: torch's CPU generator, bit for bit", 0, 0, 0, NULL},
    {"dump", 0, KIND_TEXT, PIC, "DIR", "write every stage's tensor to DIR/NAME.safetensors", AT(dump), 0, 0,
     NULL},
    {"taps", 0, KIND_SWITCH, GEN, NULL, "with --dump: also what the decoder computes on the way (large)", AT(taps), 0, 0, NULL},
    {"inject", 0, KIND_INJECT, PIC, "NAME=FILE",
     "take the stage NAME from FILE (as --dump wrote it); repeatable", 0, 0, 0, NULL},
    {"dry-run", 0, KIND_SWITCH, RUN, NULL,
     "show parameters, tokens, sigmas and the memory plan; render nothing", AT(dry_run), 0, 0, NULL},
    {"sync", 0, KIND_SWITCH, PIC | SLF, NULL,
     "wait for the GPU after every operation, so that a fault\nthere names the one at fault (slow)", AT(sync), 0, 0, NULL},
    {"graphs", 0, KIND_ON_OFF, PIC | BEN, "on|off",
     "on a GPU capture a denoising step once and replay it\n(default: on)", AT(no_graphs), 0, 0, NULL},
    {"profile", 0, KIND_SWITCH, ONE | BEN, NULL,
     "time every operation on the device, by variant and shape: a table\non standard error (and in --report)",
     AT(profile), 0, 0, NULL},
    {"tuned", 0, KIND_SWITCH, RUN | BEN | ABT | OPTIONS_SET, NULL,
     "on a GPU run products by the algorithms that bench --tune found\nfaster here; they give the same bits",
     AT(tuned), 0, 0, NULL},
    {"verdicts", 0, KIND_ON_OFF, PIC | DEC | BEN, "on|off",
     "believe what earlier runs of this build found out here about\nfused kernels, and write down what is new (default: on)",
     AT(no_verdicts), 0, 0, NULL},
    {"explain", 0, KIND_SWITCH, RUN, NULL, "say how it was computed: libraries, residency, memory, who ran each operation",
     AT(explain), 0, 0, NULL},
    {"report", 0, KIND_TEXT, RUN, "FILE", "write all of that, and the seconds of each phase, as JSON", AT(report), 0, 0, NULL},
    {"trace", 0, KIND_TEXT, GEN, "FILE",
     "write a line for every tensor that an operation wrote: shape and a\nhash of its bits (slow)", AT(trace), 0, 0, NULL},
    {"no-metadata", 0, KIND_SWITCH, GEN | DEC, NULL, "leave prompt, seed and parameters out of the file",
     AT(no_metadata), 0, 0, NULL},
    {"keep-latents", 0, KIND_SWITCH, DEC, NULL, "leave the latents of a failed run where they are, though the file is written",
     AT(keep_latents), 0, 0, NULL},
    {"overwrite", 'y', KIND_SWITCH, RUN | DEC | CMP | SLF | NOI | ABT, NULL, "replace existing files", AT(overwrite), 0, 0,
     "yes"},
    {"shape", 0, KIND_SHAPE, NOI, "N,N,...", "extents of one draw, as torch.randn takes them", 0, 0, 0, NULL},
    {"out", 0, KIND_TEXT, BAT, "DIR", "folder for the pictures and the journal; made if there is none", AT(out), 0, 0, NULL},
    {"resume", 0, KIND_SWITCH, BAT, NULL, "leave out the jobs that the journal in DIR and its files show as done", AT(resume),
     0, 0, NULL},
    {"keep-going", 0, KIND_SWITCH, BAT, NULL, "report a job that fails and do the others", AT(keep_going), 0, 0, NULL},
    {"shard", 0, KIND_SHARD, BAT, "I/N", "do the I-th of N parts of the file, I from 0; slurm: as this task of a\njob array",
     0, 0, 0, NULL},
    {"gpus", 0, KIND_TEXT, BAT, "LIST", "one process for each of these GPUs: numbers with commas between", AT(gpus), 0, 0, NULL},
    {"a", 0, KIND_SET, ABT, "OPTIONS", "the reference's options, beside those that both sides have", AT(set[0]), 0, 0, NULL},
    {"b", 0, KIND_SET, ABT, "OPTIONS", "the output's options", AT(set[1]), 0, 0, NULL},
    {"reference", 0, KIND_TEXT, ABT, "DIR",
     "the reference is this folder of stages (--dump, or\nscripts/dump_reference.py); its parameters are the default",
     AT(reference), 0, 0, NULL},
    {"prompts", 0, KIND_TEXT, ABT, "FILE", "a prompt a line, instead of -p; of folders: DIR/0001, DIR/0002, ...", AT(prompts),
     0, 0, NULL},
    {"sheet", 0, KIND_TEXT, ABT, "FILE.png", "write a contact sheet: reference, output, difference, a row a prompt", AT(sheet),
     0, 0, NULL},
    {"min-psnr", 0, KIND_REAL, CMP | ABT, "X",
     "same enough when the PSNR of every frame or tensor is at least X dB\n(ab: of last latents and pixels)",
     AT(min_psnr), 0, 1000, NULL},
    {"min-ssim", 0, KIND_REAL, CMP, "X", "same enough when the SSIM of every frame is at least X, 0 to 1", AT(min_ssim), 0, 1,
     NULL},
    {"min-snr", 0, KIND_REAL, CMP, "X", "same enough when the sound's signal-to-noise ratio is at least X dB", AT(min_snr), 0,
     1000, NULL},
    {"max-abs", 0, KIND_REAL, CMP, "X",
     "same enough when no sample differs by more than X: code values of\na picture, values of a tensor", AT(max_abs), 0, 1e38,
     NULL},
    {"diff", 0, KIND_TEXT, CMP, "FILE.png", "write a picture of the differences, of the frame with the lowest PSNR", AT(diff),
     0, 0, NULL},
    {"no-special", 0, KIND_SWITCH, TOK, NULL, "leave out the special tokens that the tokenizer adds",
     AT(no_special), 0, 0, NULL},
    {"manifest", 0, KIND_TEXT, SLF, "FILE",
     "sizes and SHA-256 sums to compare the files with\n(default: DIR/ditto-manifest.tsv, if there is one)",
     AT(manifest), 0, 0, NULL},
    {"record", 0, KIND_SWITCH, SLF, NULL,
     "write what was found: DIR/ditto-selftest.tsv, and\nDIR/ditto-manifest.tsv when there is no manifest", AT(record), 0,
     0, NULL},
    {"runs", 0, KIND_INT, BEN, "N", "runs that count, 1 to 200 (default: 5)", AT(runs), 1, BENCH_MOST, NULL},
    {"warmup", 0, KIND_INT, BEN | ABT, "N",
     "runs before them that do not, 0 to 50 (default: 2;\nab: of each side, 0, with --prompts 1)", AT(warmup), 0,
     BENCH_WARMUP, NULL},
    {"tune", 0, KIND_SWITCH, BEN, NULL,
     "instead of timing a phase: try the library's algorithms for the\nproducts of a picture, keep the fastest of the same bits",
     AT(tune), 0, 0, NULL},
    {"serve", 0, KIND_SWITCH, BEN, NULL, "measure once for each line on standard input", AT(serve), 0, 0, NULL},
    {"json", 0, KIND_SWITCH, RUN | DEC | CMP | INS | VER | SIG | NOI | ABT, NULL,
     "print JSON: one object a picture, or one for the whole result;\ngenerate, batch: progress events too", AT(json), 0, 0,
     NULL},
    {"verbose", 'v', KIND_VERBOSE, RUN | DEC | ABT, NULL, "say more on standard error", AT(verbosity), 0, 0, NULL},
    {"quiet", 'q', KIND_QUIET, RUN | DEC | SLF | VER | ABT, NULL, "say nothing on standard error but errors", AT(verbosity), 0, 0,
     NULL},
    {"help", 'h', KIND_HELP, ALL, NULL, "this text", 0, 0, 0, NULL},
    {"version", 0, KIND_VERSION, ALL, NULL, "print the version", 0, 0, 0, NULL},
};
enum { OPTION_COUNT = (int)(sizeof OPTIONS / sizeof OPTIONS[0]) };

static const CommandInfo COMMANDS[COMMAND_COUNT] = {
    [COMMAND_GENERATE] = {"generate", "-m DIR -p TEXT [-o NAME.png|NAME.mp4] [options]",
                          "render pictures or clips from a prompt (the default)",
                          "One path a line on standard output; everything else goes to standard error.\n"
                          "With --json standard output has JSON lines: event progress with phase (text, denoise,\n"
                          "decode), done of total, seconds of the phase and an estimate of those remaining; last of\n"
                          "each picture event result with status done, path, parameters and seconds, or failed,\n"
                          "code and error.", 0,
                          0},
    [COMMAND_BATCH] = {"batch", "JOBS --out DIR [options]",
                       "render the jobs of a file: options as JSON, one object a line, or prompts",
                       "Options are the jobs' defaults. One JSON object a job on standard output, when its picture is written.",
                       1, 1},
    [COMMAND_DECODE] = {"decode", "LATENTS.safetensors [-m DIR] [-o NAME] [options]",
                        "finish a job from its latents: decode and write them",
                        "What the file says of its job is taken from it; one that says nothing (--dump) needs -m and sizes.\n"
                        "Latents that a failed run left become the file that it was to write,\n"
                        "beside them, and are removed then.",
                        1, 1},
    [COMMAND_COMPARE] = {"compare", "REFERENCE OUTPUT [options]",
                         "compare pictures, folders of frames, videos, sound or tensors",
                         "Equal bits, differences, PSNR, SSIM, first difference. A limit holds for every frame and tensor.\n"
                         "Exit code: 0 equal (or within the limits given), 1 different, 2 not comparable.", 2,
                         2},
    [COMMAND_AB] = {"ab", "-m DIR -p TEXT --a OPTIONS --b OPTIONS | -m DIR --reference DIR | DIR DIR",
                    "two runs, or a run and a reference, stage by stage",
                    "Says which stage differs first and by how much. Exit code: 0 equal (or last latents and pixels within\n"
                    "--min-psnr), 1 different, 2 not comparable or failed.", 0, 2},
    [COMMAND_INSPECT] = {"inspect", "DIR|FILE", "list a model's or a file's tensors, or the metadata of a PNG or a clip", "",
                         1, 1},
    [COMMAND_TOKENS] = {"tokens", "TOKENIZER_DIR [--no-special] | -m DIR -p TEXT",
                        "token ids of JSON strings, or what each encoder of a model will see",
                        "With TOKENIZER_DIR: one JSON string a line on standard input, one JSON array of ids "
                        "a line on output.",
                        0, 1},
    [COMMAND_SELFTEST] = {"selftest", "-m DIR [options]", "check a model's files, and one step on this machine",
                          "Prints SHA-256 sums: a line a file, then a line a stage of one denoising step. Exit code: 0\n"
                          "nothing differs, 1 a stage differs from the record, 3 a file from the manifest.",
                          0, 0},
    [COMMAND_BENCH] = {"bench", "step|decode|load|picture|text -m DIR [options] | --tune -m DIR [options]",
                       "time a phase of a picture, as JSON; or tune products",
                       "Median, smallest and largest of --runs; on a GPU by its own clock. --tune writes to ditto/tuned.tsv in\n"
                       "XDG_CACHE_HOME or ~/.cache, which only --tuned reads.", 0, 1},
    [COMMAND_VERIFY] = {"verify", "FILE [-m DIR] [options]", "render a picture or clip again from what it says of itself",
                        "Says whether the pixels are equal, and what of program, device, libraries and kernels is not as\n"
                        "recorded. Exit code: 0 equal, 1 not, 2 the picture does not carry all that is needed.",
                        1, 1},
    [COMMAND_SIGMAS] = {"sigmas", "-m DIR [-W N] [-H N] [--steps N] [--json]", "the noise levels that a run will use",
                        "A line a step: step, sigma, timestep, what the model is given for it, factor of the step.", 0, 0},
    [COMMAND_NOISE] = {"noise", "--seed N --shape N,N,... | --seed N -m DIR [options]", "the noise that a seed gives",
                       "Of a shape, or what a model draws for a size. With -o it is written for --inject noise=FILE.", 0, 0},
    [COMMAND_COMPLETION] = {"completion", "bash|zsh|fish", "print a completion script for a shell", "", 1, 1},
    [COMMAND_MAN] = {"man", "", "print the manual page (roff)", "For example: ditto man | man -l -", 0, 0},
};

static const ExitCode EXIT_CODES[] = {
    {OK, "done"},
    {ERR_SOME, "compare, ab, verify or selftest found a difference; batch --keep-going: pictures failed"},
    {ERR_USAGE, "usage: a bad option or value, a file that exists; compare, ab: not comparable"},
    {ERR_MODEL, "bad weights, config or tokenizer"},
    {ERR_MEMORY, "out of memory, or the plan does not fit this machine"},
    {ERR_NAN, "NaN or Inf appeared; the text names the first stage"},
    {ERR_IO, "reading or writing a file failed"},
    {ERR_DEVICE, "no usable device, driver or library"},
    {ERR_INTERRUPTED, "interrupted"},
};
enum { EXIT_CODE_COUNT = (int)(sizeof EXIT_CODES / sizeof EXIT_CODES[0]) };

const ExitCode *options_exit_code(int i) { return i >= 0 && i < EXIT_CODE_COUNT ? &EXIT_CODES[i] : NULL; }

const Option *options_at(int i) { return i >= 0 && i < OPTION_COUNT ? &OPTIONS[i] : NULL; }

const CommandInfo *options_command(Command command) { return &COMMANDS[command]; }

static bool same_name(const char *a, size_t size, const char *name, size_t name_size) {
    if (size != name_size) return false;
    for (size_t i = 0; i < size; i++)
        if ((a[i] == '_' ? '-' : a[i]) != name[i]) return false;
    return true;
}

/* Calls for the main name first, then each alias; true stops. */
static bool each_spelling(const Option *o, bool (*visit)(const char *name, size_t size, void *user),
                          void *user) {
    if (visit(o->name, strlen(o->name), user)) return true;
    for (const char *a = o->aliases; a && *a;) {
        size_t size = strcspn(a, " ");
        if (visit(a, size, user)) return true;
        a += size + (a[size] == ' ');
    }
    return false;
}

typedef struct Wanted {
    const char *name;
    size_t size;
} Wanted;

static bool matches(const char *name, size_t size, void *user) {
    const Wanted *w = user;
    return same_name(w->name, w->size, name, size);
}

const Option *options_find(const char *name, size_t size, unsigned commands) {
    for (int i = 0; i < OPTION_COUNT; i++)
        if ((OPTIONS[i].commands & commands) && each_spelling(&OPTIONS[i], matches, &(Wanted){name, size}))
            return &OPTIONS[i];
    return NULL;
}

const Option *options_find_brief(char brief, unsigned commands) {
    for (int i = 0; i < OPTION_COUNT; i++)
        if (OPTIONS[i].brief && OPTIONS[i].brief == brief && (OPTIONS[i].commands & commands))
            return &OPTIONS[i];
    return NULL;
}

/* Edit distance (insert, delete, replace, exchange of neighbours); names longer than the rows count as far. */
static int distance(const char *a, size_t n, const char *b, size_t m) {
    enum { LONGEST = 40 };
    int row[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t i = 0; i <= n; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                now[j] = (int)(i + j);
                continue;
            }
            int d = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < d) d = last[j] + 1;
            if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < d)
                d = before[j - 2] + 1;
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

typedef struct Nearest {
    const char *typed;
    size_t typed_size;
    char best[48];
    int best_distance;
} Nearest;

static bool nearer(const char *name, size_t size, void *user) {
    Nearest *n = user;
    int d = distance(n->typed, n->typed_size, name, size);
    if (d < n->best_distance && size < sizeof n->best) {
        n->best_distance = d;
        memcpy(n->best, name, size);
        n->best[size] = 0;
    }
    return false;
}

/* A suggestion is worth printing when less than half of the typed name had to change. */
static bool worth_saying(const Nearest *n) {
    return n->best[0] && n->best_distance <= 3 && (size_t)n->best_distance * 2 <= n->typed_size;
}

Status options_unknown(const char *arg, size_t size, Command command, Error *e) {
    const char *dashes = "--";
    if (options_find(arg, size, ALL))
        return fail(e, ERR_USAGE, "option %s%.*s does not belong to \"ditto %s\"; see ditto %s --help",
                    dashes, (int)size, arg, COMMANDS[command].name, COMMANDS[command].name);
    Nearest n = {.typed = arg, .typed_size = size, .best_distance = 1000};
    for (int i = 0; i < OPTION_COUNT; i++)
        if (OPTIONS[i].commands & (1u << command)) each_spelling(&OPTIONS[i], nearer, &n);
    if (worth_saying(&n))
        return fail(e, ERR_USAGE, "unknown option %s%.*s; did you mean --%s?", dashes, (int)size, arg,
                    n.best);
    return fail(e, ERR_USAGE, "unknown option %s%.*s; see ditto %s --help", dashes, (int)size, arg,
                COMMANDS[command].name);
}

Status options_unknown_command(const char *word, Error *e) {
    Nearest n = {.typed = word, .typed_size = strlen(word), .best_distance = 1000};
    for (int i = 0; i < COMMAND_COUNT; i++) nearer(COMMANDS[i].name, strlen(COMMANDS[i].name), &n);
    if (worth_saying(&n))
        return fail(e, ERR_USAGE, "unknown command \"%s\"; did you mean \"%s\"?", word, n.best);
    char all[200] = "";
    size_t used = 0;
    for (int i = 0; i < COMMAND_COUNT && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", !i ? "" : i + 1 == COMMAND_COUNT ? " or " : ", ",
                                 COMMANDS[i].name);
    return fail(e, ERR_USAGE, "unknown command \"%s\"; expected %s", word, all);
}
