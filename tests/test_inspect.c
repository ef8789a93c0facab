/* test_inspect.c - inspect_path against lists it must reproduce, a model's rows, and folders with a broken component.
 *
 * Arguments: files of "NAME<tab>SHAPE" lines in byte order (published tensor lists). For each, a sparse safetensors file
 * with those tensors is made and the listing must give the lines back. A built-in list runs always. */
#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "expect.h"
#include "inspect.h"

#define T(name, dtype, shape, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

/* Runs inspect and returns its output, malloc'd. */
static char *listing(const char *path, const InspectModel *model, bool json, Status want, const char *part) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    Error e;
    expect_status(inspect_path(path, model, out, json, &e), want, part, &e);
    fclose(out);
    return text;
}

/* Header-only file: the payload is a hole of the right length. Tensors lie in reverse order, so that sorting matters. */
static void make_sparse(const char *path, char *list) {
    char *line[8000], *header = malloc(2000000), *at = header;
    int n = 0;
    for (char *l = strtok(list, "\n"); l && n < 8000; l = strtok(NULL, "\n")) line[n++] = l;
    unsigned long long end = 0;
    at += sprintf(at, "{");
    for (int i = n - 1; i >= 0; i--) {
        char *tab = strchr(line[i], '\t');
        unsigned long long count = 1;
        if (!tab) abort();
        for (char *d = tab + 1; *d; d = *strchrnul(d, ',') ? strchr(d, ',') + 1 : strchr(d, 0))
            count *= strtoull(d, NULL, 10);
        at += sprintf(at, "%s\"%.*s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                      i == n - 1 ? "" : ",", (int)(tab - line[i]), line[i], tab + 1, end, end + 2 * count);
        end += 2 * count;
    }
    at += sprintf(at, "}");
    uint64_t length = (uint64_t)(at - header);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), f);
    fwrite(header, 1, length, f);
    fclose(f);
    if (truncate(path, (off_t)(8 + length + end))) abort();
    free(header);
}

/* First two columns of the tensor lines. */
static char *first_columns(const char *text) {
    char *out = malloc(strlen(text) + 1), *to = out;
    for (const char *l = text; *l; l = *strchrnul(l, '\n') ? strchr(l, '\n') + 1 : strchr(l, 0)) {
        if (*l == '#') continue;
        const char *second = strchr(l, '\t'), *third = second ? strchr(second + 1, '\t') : NULL;
        if (!third) continue;
        memcpy(to, l, (size_t)(third - l));
        to += third - l;
        *to++ = '\n';
    }
    *to = 0;
    return out;
}

static void agrees(const char *folder, const char *list, const char *what) {
    char path[600], *copy = strdup(list);
    snprintf(path, sizeof path, "%s/sparse.safetensors", folder);
    make_sparse(path, copy);
    char *text = listing(path, NULL, false, OK, ""), *columns = first_columns(text);
    int same = !strcmp(columns, list);
    if (!same) printf("%s: listing differs\n", what);
    expect(same);
    free(columns);
    free(text);
    free(copy);
    unlink(path);
}

/* A model that wants "used.weight" [2,2] and "gone.weight" [1,1] of its transformer, and ignores "skip". */
static const Bind *rows(void *user, const char *component, const char *const **ignore) {
    static const char *const IGNORE[] = {"skip", NULL};
    *ignore = IGNORE;
    return strcmp(component, "transformer") ? NULL : user;
}

static void model_folder(const char *folder) {
    char dir[300];
    snprintf(dir, sizeof dir, "%s/model", folder);
    expect_text(
        dir, "model_index.json",
        "{\"_class_name\":\"FluxPipeline\",\"scheduler\":[\"diffusers\",\"S\"],\"tokenizer\":["
        "\"transformers\",\"T\"],"
        "\"image_encoder\":[null,null],\"transformer\":[\"diffusers\",\"D\"],\"vae\":[\"diffusers\",\"V\"]}");
    const char *with =
        "{" T("used.weight", "F32", "[2,2]", 0, 16) "," T("skip.me", "U8", "[1]", 16, 17) "," T(
            "bent.weight", "F16", "[4]", 17, 25) "," T("ta\\tb", "U8", "[]", 25, 26) "}";
    expect_safetensors_file(dir, "transformer/diffusion_pytorch_model.safetensors", with, 26);
    Weight w = {0};
    Bind b = {0};
    bind_linear(&b, &w, 2, 2, false, "used");
    bind_linear(&b, &w, 1, 1, false, "gone");
    bind_linear(&b, &w, 4, 1, false, "bent");
    InspectModel model = {rows, &b};
    char *text = listing(dir, NULL, false, ERR_MODEL, "vae: missing");
    expect(
        strstr(text,
               "transformer/used.weight\t2,2\tF32\t16\ttransformer/diffusion_pytorch_model.safetensors\n") !=
        NULL);
    expect(strstr(text, "transformer/ta\\x09b\t\tU8\t1\t") != NULL);
    expect(strstr(text, "# transformer: 4 tensors, 10 elements, 26 bytes, 1 F32, 1 F16, 2 U8\n") != NULL);
    expect(strstr(text, "# vae: ") != NULL && strstr(text, "# total: 2 components, 4 tensors") != NULL);
    free(text);
    expect_safetensors_file(dir, "vae/diffusion_pytorch_model.safetensors",
                            "{" T("v", "BF16", "[0,3]", 0, 0) "}", 0);
    text = listing(dir, NULL, false, OK, "");
    expect(strstr(text, "vae/v\t0,3\tBF16\t0\t") != NULL);
    free(text);
    text = listing(dir, &model, false, ERR_MODEL, "1 missing, 1 of wrong shape");
    expect(strstr(text, "transformer/used.weight\t2,2\tF32\t16\ttransformer/"
                        "diffusion_pytorch_model.safetensors\tused\n") != NULL);
    expect(strstr(text, "\tignored\n") && strstr(text, "\tunused\n"));
    expect(strstr(text, "# missing: transformer/gone.weight [1, 1]\n") != NULL);
    expect(strstr(text, "# wrong shape: transformer/bent.weight [4, 1], found [4]\n") != NULL);
    expect(strstr(text, "# transformer: 2 used, 1 unused, 1 missing, 1 wrong shape, 0 unsupported dtype\n") !=
           NULL);
    free(text);
    text = listing(dir, &model, true, ERR_MODEL, "1 missing");
    Json *j = NULL;
    Error e = {0};
    expect_ok(json_parse(text, strlen(text), "json", &j, &e), &e);
    int64_t bytes = 0;
    expect_ok(json_int(j, "bytes", &bytes, "json", &e), &e);
    expect(bytes == 26 && strstr(text, "\"fault\":\"missing\"") && strstr(text, "ta\\tb"));
    json_free(j);
    free(text);
    text = listing(folder, NULL, false, ERR_MODEL, "missing diffusion_pytorch_model.safetensors or");
    free(text);
    char none[600];
    snprintf(none, sizeof none, "%s/none", folder);
    free(listing(none, NULL, false, ERR_IO, "no such file"));
    expect_safetensors_file(folder, "nothing.safetensors", "{\"__metadata__\":{}}", 0);
    snprintf(none, sizeof none, "%s/nothing.safetensors", folder);
    text = listing(none, NULL, false, OK, "");
    expect(strstr(text, ": 0 tensors, 0 elements, 0 bytes\n") != NULL);
    free(text);
    bind_free(&b);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        expect_status(inspect_path(dir, NULL, full, false, &e), ERR_IO, "cannot write", &e);
        fclose(full);
    }
}

int main(int argc, char **argv) {
    char folder[256];
    expect_folder(folder, sizeof folder);
    agrees(folder, "a.bias\t3072\na.weight\t3072,4096\nb.10\t1\nb.2\t1,2,3,4,5,6,7,8\ncount\t1\nempty\t0,7\n",
           "built-in list");
    for (int i = 1; i < argc; i++) {
        char *list;
        Error e;
        expect_ok(file_read(argv[i], &list, NULL, &e), &e);
        agrees(folder, list, argv[i]);
        free(list);
    }
    model_folder(folder);
    expect_cleanup(folder);
    return expect_done();
}
