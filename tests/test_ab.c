/* test_ab.c - ditto ab on the tiny checkpoints: a fault put into each stage of a run must be the first that is reported, with
 * its size; sides that are equal; limits; folders spoilt one way at a time. The sheet: test_ab_sheet.c.
 * Easy to get wrong: what is expected of a fault (elements, largest difference, PSNR) is computed here from the files' bytes. */
#include "ab_test.h"
#include "core/convert.h"
#include "core/safetensors.h"
#include "generate.h"
#include "stages.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>

static void draw(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void draw(const char *format, ...) {
    char line[2000] = "ditto|generate|", *argv[60];
    va_list args;
    va_start(args, format);
    vsnprintf(line + strlen(line), sizeof line - strlen(line), format, args);
    va_end(args);
    const volatile int interrupted = 0;
    Cli cli;
    Error e;
    FILE *null = fopen("/dev/null", "w");
    expect_ok(cli_parse(words(line, argv, 60), argv, &cli, &e), &e);
    expect_ok(generate_run(&cli, cli.model, null, null, false, &interrupted, &e), &e);
    cli_free(&cli);
    fclose(null);
}

/* One line of JSON on standard output. */
static cJSON *answer(void) {
    cJSON *j = cJSON_Parse(printed);
    expect(j && strchr(printed, '\n') == printed + strlen(printed) - 1);
    return j ? j : cJSON_CreateObject();
}

/* Of the first prompt. */
static cJSON *only(cJSON *j) {
    cJSON *prompts = cJSON_GetObjectItemCaseSensitive(j, "prompts");
    return prompts ? prompts->child : NULL;
}

static cJSON *get(cJSON *o, const char *key) { return cJSON_GetObjectItemCaseSensitive(o, key); }
static double number(cJSON *o, const char *key) { return cJSON_GetNumberValue(get(o, key)); }
static const char *text(cJSON *o, const char *key) {
    const char *s = cJSON_GetStringValue(get(o, key));
    return s ? s : "";
}

#define FLUX "-m|flux|-p|a cat|-W|32|-H|48|--steps|3|--max-sequence-length|16|--seed|9|-q"
#define ZIMAGE "-m|zimage|-p|a cat|-W|32|-H|32|--steps|2|--max-sequence-length|32|--cfg-scale|2|-n|dull|--seed|9|-q"

/* --- faults --- */

/* With the lowest bit of element `flip` turned. */
static void copy_stage(const char *from, const char *to, const char *name, int64_t flip, double *old, double *new,
                       double range[2]) {
    char path[300];
    Safetensors f;
    Error e;
    snprintf(path, sizeof path, "%s/%.40s.safetensors", from, name);
    expect_ok(safetensors_open(path, &f, &e), &e);
    const SafetensorsEntry *t = safetensors_find(&f, name);
    unsigned char *bytes = malloc(t->bytes);
    memcpy(bytes, f.payload, t->bytes);
    size_t step = dtype_size(t->dtype), count = t->bytes / step;
    range[0] = INFINITY, range[1] = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double v = convert_value(bytes + i * step, t->dtype);
        if (v < range[0]) range[0] = v;
        if (v > range[1]) range[1] = v;
    }
    unsigned char *at = bytes + (size_t)flip % count * step;
    *old = convert_value(at, t->dtype);
    at[0] ^= 1;
    *new = convert_value(at, t->dtype);
    expect_ok(stages_write_file(to, name, t->dtype, t->rank, t->shape, bytes, true, &e), &e);
    free(bytes);
    safetensors_close(&f);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* One bit of one element of every stage of a run, in turn. */
static void test_faults(const char *run, const char *dump, int least) {
    char name[64][40], path[300];
    int count = 0;
    bool model_z = strstr(run, "zimage") != NULL;
    draw("%s|-o|out.png|-y|--dump|%s", run, dump);
    DIR *dir = opendir(dump);
    for (const struct dirent *d; (d = readdir(dir));)
        if (strstr(d->d_name, ".safetensors")) snprintf(name[count++], 40, "%.*s", (int)strcspn(d->d_name, "."), d->d_name);
    closedir(dir);
    qsort(name, (size_t)count, sizeof *name, by_name);
    expect(count >= least);
    for (int i = 0; i < count; i++) {
        double old, new, range[2];
        copy_stage(dump, "fault.safetensors", name[i], 2, &old, &new, range); /* of the ids, the prompt's last token */
        if (model_z && strstr(name[i], "mask")) { /* fewer tokens reach the transformer */
            snprintf(path, sizeof path, "; %.40s is the first stage that differs", name[i]);
            gives(ERR_USAGE, path, "%s|--b|--inject %s=fault.safetensors", run, name[i]);
            continue;
        }
        gives(ERR_SOME, "a and b differ: first ", "%s|--json|--a||--b|--inject %s=fault.safetensors", run, name[i]);
        cJSON *j = answer(), *prompt = only(j);
        expect_at(!strcmp(text(prompt, "first_differing"), name[i]), name[i], __FILE__, __LINE__);
        expect(cJSON_IsFalse(get(j, "equal")) && cJSON_IsFalse(get(j, "passed")));
        cJSON *row;
        int seen = 0, before = 0;
        cJSON_ArrayForEach(row, get(prompt, "stages")) {
            if (!seen && strcmp(text(row, "name"), name[i]) != 0) {
                before += cJSON_IsTrue(get(row, "equal")) ? 0 : 1;
                continue;
            }
            if (seen++) continue;
            double d = fabs(old - new), n = number(row, "elements");
            double peak = !strcmp(name[i], "pixels") || !strcmp(name[i], "image") ? 255 : range[1] - range[0];
            expect(number(row, "differing") == 1 && fabs(number(row, "max_abs") - d) <= 1e-15 * d && d > 0);
            double psnr = peak > 0 ? 10 * log10(peak * peak / (d * d / n)) : -INFINITY;
            double found = cJSON_IsNull(get(row, "psnr")) ? -INFINITY : number(row, "psnr");
            expect_at(psnr == found || fabs(found - psnr) < 1e-6, "PSNR of a fault", __FILE__, __LINE__);
            expect(fabs(number(get(row, "first_difference"), "reference") - old) <= 1e-15 * fabs(old));
        }
        expect(seen > 0 && before == 0);
        cJSON_Delete(j);
        snprintf(path, sizeof path, "first stage that differs: %.40s (1 of ", name[i]);
        if (i % 4) continue;
        gives(ERR_SOME, name[i], "%s|--b|--inject %s=fault.safetensors", run, name[i]);
        expect(strstr(printed, path) != NULL);
    }
}

/* --- equal, and by how much not --- */

static void test_equal(void) {
    static const char *const RUNS[] = {FLUX, ZIMAGE, FLUX "|--dtype|f32", FLUX "|-i|x.png|--strength|0.5"};
    for (int i = 0; i < 4; i++) {
        gives(OK, "", "%s|--a||--b|--families none", RUNS[i]); /* lossless families are EXACT */
        says("first stage that differs: none\nPSNR: latents inf dB, pixels inf dB\n");
        says("equal bits: yes\n");
        silent("only in");
    }
    gives(OK, "", FLUX "|--a||--b|--sync|--json"); /* another way to wait: a pipeline each, one after the other */
    cJSON *j = answer(), *prompt = only(j);
    expect(cJSON_IsTrue(get(j, "equal")) && cJSON_IsTrue(get(j, "passed")) && !get(prompt, "first_differing"));
    expect(!strcmp(text(prompt, "latents_psnr"), "inf") && !strcmp(text(prompt, "pixels_psnr"), "inf"));
    expect(number(get(prompt, "reference_parameters"), "seed") == 9 && number(get(prompt, "output_parameters"), "steps") == 3);
    cJSON_Delete(j);
    gives(OK, "", "-m|flux|-p|x|-W|32|-H|32|--steps|1|--max-sequence-length|16|--b|"); /* a drawn seed, the same for both */
    expect(strstr(said, "a: tiny-flux on cpu in bf16: 32x32, 1 steps, seed ") != NULL);
    char *first = strstr(said, "seed "), *second = strstr(first + 1, "seed ");
    expect(second && strcspn(first, "\n") == strcspn(second, "\n") && !strncmp(first, second, strcspn(first, "\n")));
}

static void test_quality(void) {
    gives(ERR_SOME, "a and b differ: first velocity_000: max difference ",
          FLUX "|--json|--a|--quality lossless --dump la|--b|--quality high --dump hi");
    cJSON *j = answer(), *prompt = only(j), *row;
    double latents = number(prompt, "latents_psnr"), pixels = number(prompt, "pixels_psnr");
    bool before = true;
    cJSON_ArrayForEach(row, get(prompt, "stages")) { /* bit by bit as the two dumps say */
        char path[2][100], *bytes[2];
        size_t size[2];
        Error e;
        for (int i = 0; i < 2; i++) {
            snprintf(path[i], sizeof path[i], "%s/%s.safetensors", i ? "hi" : "la", text(row, "name"));
            expect_ok(file_read(path[i], &bytes[i], &size[i], &e), &e);
        }
        bool same = size[0] == size[1] && !memcmp(bytes[0], bytes[1], size[0]);
        expect(same == cJSON_IsTrue(get(row, "equal")));
        if (before && !same) expect(!strcmp(text(row, "name"), text(prompt, "first_differing")));
        before = before && same;
        free(bytes[0]);
        free(bytes[1]);
    }
    expect(!before && latents > 20 && pixels > 20);
    cJSON_Delete(j);
    double low = latents < pixels ? latents : pixels;
    const char *worse = latents < pixels ? "latents: PSNR" : "pixels: PSNR";
    gives(OK, "", FLUX "|--b|--quality high|--min-psnr|%.6f", low - 1e-4);
    says("equal bits: no\n");
    gives(ERR_SOME, worse, FLUX "|--b|--quality high|--min-psnr|%.6f", low + 1e-4);
    gives(OK, "", FLUX "|--reference|la");
    gives(ERR_SOME, "la and b differ", FLUX "|--reference|la|--b|--quality high");
    gives(ERR_SOME, "la and hi differ: first velocity_000", "la|hi");
    gives(OK, "", "la|hi|--min-psnr|%.6f", low - 1e-4);
    gives(ERR_SOME, worse, "la|hi|--min-psnr|%.6f", low + 1e-4);
    gives(ERR_SOME, "a and b differ: first ", FLUX "|--a|--dtype f32|--b|--dtype bf16");
    says("other dtype: \"F32\" | \"BF16\"\n");
    says(": F32 | BF16 [");
}

/* Nothing of a job before: its encoders run again. */
static void test_fresh(void) {
    Pipeline *p = NULL;
    Error e;
    expect_ok(pipeline_open(&(PipelineOptions){.model = "flux", .device = "cpu"}, &p, &e), &e);
    for (int i = 0; i < 3; i++) {
        Job job = {.prompt = "a cat", .width = 32, .height = 32, .steps = 1, .max_sequence_length = 16, .fresh = i != 1};
        Media m;
        uint64_t runs = 0;
        /* 0: fresh leaves nothing, so 1 encodes and remembers; 2: fresh does not look */
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(pipeline_render(p, &job, NULL, &m, &e), &e);
        for (int k = 0; k < m.dispatches; k++)
            if (!strcmp(m.dispatch[k].part, "text_encoder_2")) runs += m.dispatch[k].count;
        expect(runs > 0);
        media_free(&m);
    }
    pipeline_close(p);
}

/* --- the reference's parameters --- */

static void test_reference(void) {
    draw(FLUX "|--guidance|2|-o|out.png|-y|--dump|ref");
    gives(OK, "", "-m|flux|--reference|ref");
    expect(strstr(said, "b: tiny-flux on cpu in bf16: 32x48, 3 steps, seed 9\n") != NULL);
    says("reference: ref\noutput: b\n");
    says("equal bits: yes\n");
    silent("other ");
    gives(ERR_SOME, "first noise", "-m|flux|--reference|ref|--seed|10");
    says("other seed: 9 | 10\n");
    gives(ERR_SOME, "first velocity_000", "-m|flux|--reference|ref|--b|--guidance 3");
    says("other guidance: 2 | 3\n");
    draw(ZIMAGE "|--cfg-normalization|0.9|-o|out.png|-y|--dump|zref"); /* records a guidance of 0, which it would refuse */
    gives(OK, "", "-m|zimage|--reference|zref");
    silent("other ");
    draw(FLUX "|-i|x.png|--strength|0.5|-o|y.png|-y|--dump|iref");
    gives(ERR_USAGE, "iref: began from an image: give it with -i", "-m|flux|--reference|iref");
    gives(OK, "", "-m|flux|--reference|iref|-i|x.png");
    gives(ERR_SOME, "first image", "-m|flux|--reference|iref|-i|y.png");
    says("other image_sha256: ");
    gives(ERR_USAGE, "iref begins with step 001 and b with step 000", "-m|flux|--reference|iref|-i|x.png|--strength|1");
    draw(FLUX "|--dtype|f32|-o|out.png|-y|--dump|fref");
    gives(OK, "", "-m|flux|--reference|fref"); /* in its number format */
    expect(rename("fref/meta.json", "meta.json") == 0);
    gives(ERR_USAGE, "no prompt: give -p TEXT; fref records none", "-m|flux|--reference|fref");
    gives(OK, "", FLUX "|--dtype|f32|--reference|fref");
    expect_text("fref", "meta.json", "{\"prompt\":\"a cat\",\"steps\":\"x\"}");
    gives(ERR_USAGE, "fref: meta.json: steps: found \"x\", expected a whole number", "-m|flux|--reference|fref");
    expect_text("fref", "meta.json", "{\"prompt\":[]}");
    gives(ERR_USAGE, "fref: meta.json: prompt: neither a string nor a number", "-m|flux|--reference|fref");
    expect_text("fref", "meta.json", "{\"prompt\":");
    gives(ERR_USAGE, "fref/meta.json", "-m|flux|--reference|fref");
    expect_text("fref", "meta.json", "[]");
    gives(ERR_USAGE, "fref/meta.json: expected a JSON object", "-m|flux|--reference|fref");
}

/* --- spoilt folders --- */

static void fresh_copy(void) { expect(system("rm -rf bad && cp -r ref bad") == 0); }

static void remake(const char *name, DType dtype, int rank, const int64_t *shape) {
    char path[100];
    Error e;
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= shape[d];
    void *zeros = calloc((size_t)n, dtype_size(dtype));
    snprintf(path, sizeof path, "bad/%s.safetensors", name);
    expect_ok(stages_write_file(path, name, dtype, rank, shape, zeros, true, &e), &e);
    free(zeros);
}

static void test_folders(void) {
    static const struct {
        const char *gone, *text;
    } HOLES[] = {
        {"velocity_001", "bad: velocity_001.safetensors is missing, but steps 0 to 2 are there"},
        {"latents_000", "bad: latents_000.safetensors is missing, but steps 0 to 2 are there"},
        {"latents", "bad: latents.safetensors is missing, but steps 0 to 2 are there: not a whole run"},
    };
    char path[100];
    for (int i = 0; i < 3; i++)
        for (int who = 0; who < 2; who++) {
            fresh_copy();
            snprintf(path, sizeof path, "bad/%s.safetensors", HOLES[i].gone);
            expect(remove(path) == 0);
            gives(ERR_USAGE, HOLES[i].text, who ? "ref|bad" : "bad|ref");
            expect(!*printed);
        }
    fresh_copy();
    expect(remove("bad/velocity_002.safetensors") == 0 && remove("bad/latents_002.safetensors") == 0);
    gives(ERR_USAGE, "bad: its sigmas are of 3 steps, but the last step there is 001: not a whole run",
          "-m|flux|--reference|bad");
    draw("-m|flux|-p|a cat|-W|32|-H|48|--steps|2|--max-sequence-length|16|--seed|9|-q|-o|out.png|-y|--dump|two");
    gives(ERR_USAGE, "ref has 3 steps and two has 2: only equal numbers can be compared", "ref|two");
    gives(ERR_USAGE, "two has 2 steps and b has 3: only equal numbers can be compared", "-m|flux|--reference|two|--steps|3");
    gives(ERR_USAGE, "a has 3 steps and b has 4: only", FLUX "|--a||--b|--steps 4");
    gives(ERR_USAGE, "a has 32x48 pixels and b has 48x48: only", FLUX "|--a||--b|-W 48");
    gives(ERR_USAGE, "a has 32x48 pixels and b has 48x48: only", FLUX "|--a|--dtype f32|--b|-W 48");
    expect(!*printed);
    fresh_copy(); /* other shapes */
    remake("prompt_embeds", BF16, 3, (int64_t[]){1, 16, 61});
    gives(ERR_USAGE, "prompt_embeds is [16, 60] in ref and [16, 61] in bad: only equal shapes", "ref|bad");
    fresh_copy(); /* the batch may be left out */
    char *bytes;
    size_t size;
    Error e;
    Safetensors f;
    expect_ok(safetensors_open("ref/prompt_embeds.safetensors", &f, &e), &e);
    expect(f.entry[0].rank == 3);
    const int64_t *shape = f.entry[0].shape + 1;
    expect_ok(stages_write_file("bad/prompt_embeds.safetensors", "prompt_embeds", BF16, 2, shape, f.payload, true, &e), &e);
    safetensors_close(&f);
    gives(OK, "", "ref|bad");
    expect_ok(file_read("ref/pooled.safetensors", &bytes, &size, &e), &e); /* damaged */
    expect_write("bad", "pooled.safetensors", bytes, size - 1);
    gives(ERR_USAGE, "bad/pooled.safetensors", "ref|bad");
    expect_write("bad", "pooled.safetensors", bytes, 0);
    gives(ERR_USAGE, "bad/pooled.safetensors", "ref|bad");
    expect_write("bad", "prompt_embeds.safetensors", bytes, size); /* under another's name */
    free(bytes);
    expect(remove("bad/pooled.safetensors") == 0);
    gives(ERR_USAGE, "bad/prompt_embeds.safetensors: holds 1 tensors, none of them the stage, expected one named prompt_embeds",
          "ref|bad");
    fresh_copy(); /* missing and surplus */
    expect(remove("bad/pooled.safetensors") == 0);
    gives(ERR_SOME, "ref and bad differ: pooled is only in the reference", "ref|bad");
    says("only in the reference: pooled\n");
    says("first stage that differs: none\n");
    says("equal bits: no\n");
    gives(ERR_SOME, "pooled is only in the reference", "ref|bad|--min-psnr|1");
    gives(OK, "", "bad|ref"); /* as of a reference whose pipeline shows less */
    says("only in the output: pooled\n");
    says("equal bits: yes\n");
    gives(OK, "", "bad|ref|--json");
    says("\"missing\":[],\"surplus\":[\"pooled\"]");
    expect(!system("rm -rf bad && mkdir bad && cp ref/ids_1.safetensors bad")); /* a part of a run is a folder of stages */
    gives(OK, "", "bad|ref");
    gives(ERR_USAGE, "--min-psnr: bad and ref have neither latents nor pixels in common", "bad|ref|--min-psnr|1");
    gives(ERR_USAGE, "--sheet: bad and ref have no pixels in common", "bad|ref|--sheet|none.png");
    expect(!file_exists("none.png"));
    expect(!system("mkdir -p empty other && cp ref/sigmas.safetensors other"));
    gives(ERR_USAGE, "empty: holds no stages", "ref|empty");
    gives(ERR_USAGE, "bad and other have no stage in common", "bad|other");
    gives(ERR_USAGE, "nowhere: no such folder", "ref|nowhere");
    gives(ERR_USAGE, "nowhere: no such folder", "-m|flux|--reference|nowhere");
    gives(ERR_USAGE, "flux: holds no stages", "-m|flux|--reference|flux");
}

/* --- option sets --- */

static void test_sets(void) {
    gives(ERR_USAGE, "--b: option --output does not belong to \"ditto ab\"", FLUX "|--b|--output x.png");
    gives(ERR_USAGE, "--b: --min-psnr belongs on the command line: it is not a side's own", FLUX "|--b|--min-psnr 4");
    gives(ERR_USAGE, "--a: --prompt belongs on the command line", FLUX "|--a|--prompt x");
    gives(ERR_USAGE, "--a: unknown option --qality; did you mean --quality?", FLUX "|--a|--qality high");
    gives(ERR_USAGE, "--a: --quality: found \"hi\"", FLUX "|--a|--quality hi");
    gives(ERR_USAGE, "--a: found \"high\", expected options only", FLUX "|--a|high");
    gives(ERR_USAGE, "--a: --steps: needs a value", FLUX "|--a|--steps");
    gives(ERR_USAGE, "--a: ' is not closed", FLUX "|--a|-n 'x");
    gives(ERR_USAGE, "--b: --inject: noise is given twice", FLUX "|--inject|noise=x|--b|--inject noise=y");
    gives(ERR_USAGE, "nothing to compare", "-m|flux|-p|x");
    gives(ERR_USAGE, "no prompt", "-m|flux|--b|");
    gives(ERR_USAGE, "no model: give -m DIR", "-p|x|--b|");
    gives(ERR_USAGE, "found one", "ref");
    gives(ERR_USAGE, "without -m", "ref|ref|-m|flux");
    gives(ERR_USAGE, "--a and --reference are both given", FLUX "|--a||--reference|ref");
    gives(ERR_USAGE, "--prompt and --prompts are both given", FLUX "|--b||--prompts|x");
    gives(ERR_USAGE, "nomodel", "-m|nomodel|-p|x|--b|");
    gives(ERR_USAGE, "--inject: noise: no such file: n", FLUX "|--b|--inject noise=n");
    expect(!*printed);
    /* words as a shell splits them: the texts are what the parameters say */
    gives(ERR_SOME, "differ", FLUX "|--cfg-scale|2|--json|--a|-n 'a \\ \"b'|--b|  -n \"c 'd\\\" \"e\\ f --quality  lossless");
    cJSON *j = answer(), *prompt = only(j);
    expect(!strcmp(text(get(prompt, "reference_parameters"), "negative_prompt"), "a \\ \"b"));
    expect(!strcmp(text(get(prompt, "output_parameters"), "negative_prompt"), "c 'd\" e f"));
    cJSON_Delete(j);
    gives(OK, "", "-p|a cat|-W|32|-H|32|--max-sequence-length|16|--seed|1|-q|--a|-m flux --steps 1|--b|-m ./flux --steps=1");
}

/* --- several prompts --- */

static void test_prompts(void) {
    expect_text(".", "p.txt", "a cat\r\n\na red circle\nthree dogs\n");
    gives(ERR_SOME, "prompt 1: first velocity_000",
          "-m|flux|-W|32|-H|32|--steps|2|--max-sequence-length|16|--seed|3|-q|--json|--prompts|p.txt|--b|--quality high");
    cJSON *j = answer(), *prompt, *prompts = get(j, "prompts");
    static const char *const PROMPTS[] = {"a cat", "a red circle", "three dogs"};
    double min = INFINITY, sum = 0, all[2][3];
    int k = 0;
    cJSON_ArrayForEach(prompt, prompts) {
        double v = number(prompt, "pixels_psnr");
        expect(!strcmp(text(get(prompt, "output_parameters"), "prompt"), PROMPTS[k]));
        for (int i = 0; i < 2; i++) {
            cJSON *s = get(get(prompt, "seconds"), i ? "output" : "reference");
            all[i][k] = number(s, "all");
            expect(all[i][k] > 0 && fabs(number(s, "text") + number(s, "denoise") + number(s, "decode") - all[i][k]) < 1e-9);
            expect(number(s, "text") > 1e-4); /* encoded by each side */
        }
        if (v < min) min = v;
        sum += v;
        k++;
    }
    expect(k == 3 && fabs(number(get(j, "pixels_psnr"), "min") - min) < 1e-9);
    expect(fabs(number(get(j, "pixels_psnr"), "mean") - sum / 3) < 1e-9 && cJSON_IsTrue(get(j, "warm")));
    for (int i = 0; i < 2; i++) {
        const double *v = all[i];
        double most = fmax(v[0], fmax(v[1], v[2])), least = fmin(v[0], fmin(v[1], v[2]));
        double median = number(get(get(j, "median_seconds"), i ? "output" : "reference"), "all");
        expect(fabs(v[0] + v[1] + v[2] - most - least - median) < 1e-9);
    }
    cJSON_Delete(j);
    gives(OK, "", "-m|flux|-W|32|-H|32|--steps|1|--max-sequence-length|16|-q|--prompts|p.txt|--b|");
    says("prompt   latents dB");
    says("pixels: PSNR min inf dB, mean inf dB; 3 of 3 without a difference\n");
    says("seconds, a / b: text ");
    says("equal bits: 3 of 3 prompts\n");
    silent("ids_1");
    gives(OK, "", "-m|flux|-W|32|-H|32|--steps|1|--max-sequence-length|16|-q|--prompts|p.txt|--b||--warmup|0");
    silent("seconds, a / b:");
    gives(OK, "", "-m|flux|-W|32|-H|32|--steps|1|--max-sequence-length|16|-v|--prompts|p.txt|--b|");
    says("ids_1: I32 [77]: equal bits\n");
    gives(ERR_USAGE, "--dump: holds one picture's stages, but there are 3 prompts",
          "-m|flux|--prompts|p.txt|--b|--dump d");
    expect_text(".", "bad.txt", "a cat\n\xff\n");
    gives(ERR_USAGE, "bad.txt: line 2: --prompt: invalid UTF-8", "-m|flux|--prompts|bad.txt|--b|");
    expect_text(".", "jobs.jsonl", "{\"prompt\":\"x\"}\n");
    gives(ERR_USAGE, "jobs.jsonl: line 1 holds an object", "-m|flux|--prompts|jobs.jsonl|--b|");
    /* a folder for each */
    expect(!system("mkdir many && cp -r ref many/0001 && cp -r ref many/0002 && cp -r ref many/0004"));
    gives(OK, "", "-m|flux|--reference|many");
    says("equal bits: 2 of 2 prompts\n");
    gives(OK, "", "many|many");
    gives(ERR_USAGE, "many holds the stages of 2 prompts, expected 3 as in --prompts",
          "-m|flux|--reference|many|--prompts|p.txt|--b|");
    gives(ERR_USAGE, "ref holds the stages of 1 prompt, expected 2", "many|ref");
    expect(remove("many/0002/velocity_001.safetensors") == 0);
    gives(ERR_USAGE, "many/0002: velocity_001.safetensors is missing", "-m|flux|--reference|many");
}

int main(void) {
    char folder[512], path[2][600];
    for (int i = 0; i < 2; i++)
        if (!realpath(i ? "tests/golden/tiny-zimage" : "tests/golden/tiny-flux", path[i])) return 1;
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    for (int i = 0; i < 2; i++)
        if (symlink(path[i], i ? "zimage" : "flux")) return 1;
    test_faults(FLUX, "df", 17);
    draw("%s|-o|x.png", FLUX);
    test_faults(ZIMAGE, "dz", 14);
    test_faults("-m|flux|-p|a cat|-i|x.png|--strength|0.6|-W|32|-H|32|--steps|3|--max-sequence-length|16|--seed|9|-q", "di", 18);
    test_equal();
    test_quality();
    test_fresh();
    test_reference();
    test_folders();
    test_sets();
    test_prompts();
    free(printed);
    free(said);
    expect_cleanup(folder);
    return expect_done();
}
