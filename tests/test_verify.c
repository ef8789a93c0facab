/* test_verify.c - pictures drawn from the tiny checkpoints and verified; then spoilt one way at a time: a pixel, a parameter,
 * the record of the environment, the text itself. Tools around it are in test_tools.sh.
 * Easy to get wrong: a verdict of "not equal" must name what differs, and name nothing when nothing does. */
#include "expect.h"
#include "generate.h"
#include "media/image.h"
#include "media/png.h"
#include "verify.h"

#include <cjson/cJSON.h>

static char model[2][600]; /* lint: allow-static (test program) */
static char printed[8192]; /* lint: allow-static (test program) */

/* Draws with this command line, words between '|'. */
static void draw(const char *line) {
    char words[800], *argv[40] = {(char *)(uintptr_t) "ditto"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = words; word && argc < 40;) {
        char *bar = strchr(word, '|');
        if (bar) *bar++ = 0;
        argv[argc++] = word;
        word = bar;
    }
    Cli cli;
    Error e;
    const volatile int interrupted = 0;
    FILE *null = fopen("/dev/null", "w");
    expect_ok(cli_parse(argc, argv, &cli, &e), &e);
    expect_ok(generate_run(&cli, cli.model, null, null, false, &interrupted, &e), &e);
    cli_free(&cli);
    fclose(null);
}

static const char *began; /* -i; lint: allow-static (test program) */

static Status verify(const char *file, const char *folder, bool json, Error *e) {
    const volatile int interrupted = 0;
    char *recorded = NULL;
    memset(printed, 0, sizeof printed);
    if (!folder) TRY(verify_model(file, &recorded, e));
    FILE *out = fmemopen(printed, sizeof printed - 1, "w");
    VerifyOptions o = {
        .image = began, .file = file, .folder = folder ? folder : recorded, .json = json, .quiet = true,
        .interrupted = &interrupted};
    Status status = verify_run(&o, out, out, e);
    fclose(out);
    free(recorded);
    return status;
}

#define verified(file, folder, code, part)                                                                             \
    do {                                                                                                               \
        Error e_ = {0};                                                                                                \
        expect_status_at(verify((file), (folder), false, &e_), (code), (part), &e_, file, __FILE__, __LINE__);         \
    } while (0)
#define says(part) expect_at(strstr(printed, (part)) != NULL, "output says " part, __FILE__, __LINE__)
#define silent(part) expect_at(strstr(printed, (part)) == NULL, "output does not say " part, __FILE__, __LINE__)

/* FROM again as TO, with `edit` in place of its value under `key` (NULL: without the key) and the first red moved by `pixel`. */
static void spoil(const char *from, const char *to, const char *key, const char *value, int pixel) {
    Error e = {0};
    Image image;
    PngTexts texts;
    expect_ok(image_read(from, &image, &e), &e);
    expect_ok(png_read_texts(from, &texts, &e), &e);
    cJSON *j = cJSON_Parse(png_texts_get(&texts, PNG_DITTO_KEY));
    if (key) cJSON_DeleteItemFromObjectCaseSensitive(j, key);
    if (value) cJSON_AddItemToObject(j, key, cJSON_Parse(value));
    char *json = cJSON_PrintUnformatted(j);
    image.rgb[0] = (uint8_t)(image.rgb[0] < 128 ? image.rgb[0] + pixel : image.rgb[0] - pixel);
    expect_ok(png_write(to, image.rgb, image.width, image.height, &(PngText){.key = PNG_DITTO_KEY, .text = json}, 1,
                        true, &e),
              &e);
    cJSON_free(json);
    cJSON_Delete(j);
    png_texts_free(&texts);
    image_free(&image);
}

static void test_equal(void) {
    static const char *const LINES[] = {
        "-m|%s|-p|a cat|--seed|7|-W|32|-H|16|--steps|1|--max-sequence-length|16|-q|-o|a.png",
        "-m|%s|-p|caf\xc3\xa9 "
        "\"x\"\n|-n|dull|--cfg-scale|2|--guidance|0|--seed|18446744073709551615|-W|16|-H|32|--steps|2|"
        "--max-sequence-length|16|--dtype|f32|-q|-o|b.png",
        "-m|%s|-p||--seed|0|-W|32|-H|16|--steps|1|--max-sequence-length|16|--quality|high|-q|-o|c.png",
        "-m|%s|-p|a cat|--seed|5|-W|32|-H|16|--steps|1|--max-sequence-length|16|--families|none|-q|-o|d.png",
    };
    static const char *const FILES[] = {"a.png", "b.png", "c.png", "d.png"};
    for (int i = 0; i < 4; i++) {
        char line[900];
        Error e = {0};
        snprintf(line, sizeof line, LINES[i], model[0]);
        draw(line);
        expect_ok(verify(FILES[i], NULL, false, &e), &e);
        expect(!strcmp(printed, "equal pixels: yes\n"));
    }
    char line[900];
    snprintf(line, sizeof line,
             "-m|%s|-p|a cat|-n|x|--cfg-scale|1.5|--cfg-truncation|0.6|--cfg-normalization|1|--seed|3|-W|32|-H|32|"
             "--steps|2|--max-sequence-length|32|-q|-o|z.png",
             model[1]);
    draw(line);
    verified("z.png", NULL, OK, "");
    says("equal pixels: yes\n");
    verified("z.png", model[0], ERR_USAGE, "--cfg-normalization"); /* another model cannot take its parameters */
}

static void test_absolute(void) {
    char line[900], *where = realpath(model[0], NULL);
    snprintf(line, sizeof line, "-m|%s|-p|a cat|--seed|7|-W|32|-H|16|--steps|1|--max-sequence-length|16|-q|-o|p.png", where);
    draw(line);
    verified("p.png", NULL, ERR_USAGE, "p.png: does not say where its model lies: give -m DIR");
    verified("p.png", where, OK, "");
    free(where);
}

static void test_different(void) {
    spoil("a.png", "s.png", NULL, NULL, 3);
    verified("s.png", NULL, ERR_SOME, "s.png: made again it differs: max difference 3, PSNR");
    says("equal pixels: no\ndiffering bytes: 1 of 1536\nmax difference: 3\n");
    says("nothing of the environment differs");
    Error e = {0};
    expect_status(verify("s.png", NULL, true, &e), ERR_SOME, "differs", &e);
    says("\"equal\":false,\"differing\":1,\"bytes\":1536,\"max_abs\":3,");
    says("\"environment\":{}");
    spoil("a.png", "s.png", "seed", "8", 0);
    verified("s.png", NULL, ERR_SOME, "made again it differs");
    spoil("a.png", "s.png", "seed", "\"7\"", 0); /* how large seeds are written */
    verified("s.png", NULL, OK, "");
    spoil("a.png", "s.png", "build", "\"00\"", 3);
    verified("s.png", NULL, ERR_SOME, "differs");
    says("other build: \"00\" | \"");
    silent("nothing of the environment");
    spoil("a.png", "s.png", "profile", "\"cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16\"", 3);
    verified("s.png", NULL, ERR_SOME, "differs");
    says("other profile: \"cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16\" | \"cpu ");
    spoil("a.png", "s.png", "profile", NULL, 0); /* a picture that does not tell is not accused */
    verified("s.png", NULL, OK, "");
    says("other profile: null | \"cpu ");
    spoil("a.png", "s.png", "ditto", "\"0.0.9\"", 0);
    verified("s.png", NULL, OK, "");
    says("equal pixels: yes\nother ditto: \"0.0.9\" | ");
}

static void test_refused(void) {
    spoil("a.png", "s.png", "inject", "[\"noise\"]", 0);
    verified("s.png", NULL, ERR_USAGE, "s.png: was made with \"inject\", which cannot be taken from the picture");
    spoil("a.png", "s.png", "a\033b", "1", 0);
    verified("s.png", NULL, ERR_USAGE, "was made with \"a\\u001bb\"");
    static const char *const KEYS[] = {"prompt", "seed", "width", "steps", "dtype", "max_sequence_length"};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        spoil("a.png", "s.png", KEYS[i], NULL, 0);
        verified("s.png", NULL, ERR_USAGE, "s.png: ");
        spoil("a.png", "s.png", KEYS[i], "-1", 0);
        Error e = {0};
        Status status = verify("s.png", NULL, false, &e);
        expect(status == ERR_USAGE || status == ERR_MODEL);
    }
    spoil("a.png", "s.png", "height", "32", 0);
    verified("s.png", NULL, ERR_USAGE, "s.png: has 32x16 pixels, but its parameters say 32x32");
    spoil("a.png", "s.png", "quality", "\"best\"", 0);
    verified("s.png", NULL, ERR_USAGE, "quality: expected lossless or high");
    spoil("a.png", "s.png", "model_path", NULL, 0);
    verified("s.png", NULL, ERR_USAGE, "s.png: does not say where its model lies: give -m DIR");
    verified("s.png", model[0], OK, "");
    Error e = {0};
    const uint8_t rgb[3 * 16] = {0};
    expect_ok(png_write("s.png", rgb, 4, 4, NULL, 0, true, &e), &e);
    verified("s.png", model[0], ERR_USAGE, "s.png: carries no parameters");
    expect_ok(png_write("s.png", rgb, 4, 4, &(PngText){.key = PNG_DITTO_KEY, .text = "[1]"}, 1, true, &e), &e);
    verified("s.png", model[0], ERR_USAGE, "s.png: its parameters are no JSON object");
    expect_ok(png_write("s.png", rgb, 4, 4, &(PngText){.key = PNG_DITTO_KEY, .text = "{"}, 1, true, &e), &e);
    verified("s.png", model[0], ERR_MODEL, "s.png");
    verified("none.png", model[0], ERR_IO, "none.png");
    expect_text(".", "s.png", "no picture");
    verified("s.png", model[0], ERR_IO, "s.png");
}

static void test_image(void) {
    char line[900];
    Error e = {0};
    snprintf(line, sizeof line, "-m|%s|-p|a cat|-i|a.png|--strength|0.5|--seed|3|-W|16|-H|16|--steps|2|"
             "--max-sequence-length|16|-q|-o|i.png", model[0]);
    draw(line);
    verified("i.png", NULL, ERR_USAGE, "i.png: began from the picture \"a.png\" (SHA-256 \"");
    began = "b.png";
    verified("i.png", NULL, ERR_USAGE, "--image: b.png is not the picture that i.png began from: it has SHA-256 ");
    verified("a.png", NULL, ERR_USAGE, "--image: a.png began from no picture");
    expect(rename("a.png", "elsewhere.png") == 0);
    began = "elsewhere.png";
    expect_ok(verify("i.png", NULL, false, &e), &e);
    expect(!strcmp(printed, "equal pixels: yes\n")); /* where it lies is no difference */
    spoil("i.png", "s.png", "image_sha256", NULL, 0);
    verified("s.png", NULL, ERR_USAGE, "s.png: does not say which picture it began from");
    spoil("i.png", "s.png", "strength", "1", 0);
    verified("s.png", NULL, ERR_SOME, "made again it differs");
    says("other steps_run: 1 | 2\n");
    began = NULL;
}

int main(void) {
    char folder[512], path[2][600];
    for (int i = 0; i < 2; i++)
        if (!realpath(i ? "tests/golden/tiny-zimage" : "tests/golden/tiny-flux", path[i])) return 1;
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    for (int i = 0; i < 2; i++) { /* relative names: only those are recorded */
        strcpy(model[i], i ? "z" : "f");
        if (symlink(path[i], model[i])) return 1;
    }
    test_equal();
    test_absolute();
    test_different();
    test_refused();
    test_image();
    expect_cleanup(folder);
    return expect_done();
}
