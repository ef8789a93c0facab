/* test_hub.c - hub and recognise: every way to name a model, the download line for what is missing, and the one-line
 * refusals of files and folders that are something else. */
#include "core/file.h"
#include "expect.h"
#include "hub.h"
#include "recognise.h"

#define T(name, dtype, shape, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
#define ONE(name) "{" T(name, "F32", "[1]", 0, 4) "}"

static const char *const FILES[] = {"scheduler/scheduler_config.json",
                                    "text_encoder/config.json",
                                    "text_encoder/model.safetensors",
                                    "text_encoder_2/config.json",
                                    "text_encoder_2/model.safetensors.index.json",
                                    "text_encoder_2/model-00001-of-00002.safetensors",
                                    "text_encoder_2/model-00002-of-00002.safetensors",
                                    "tokenizer/vocab.json",
                                    "tokenizer/merges.txt",
                                    "tokenizer_2/tokenizer.json",
                                    "transformer/config.json",
                                    "transformer/diffusion_pytorch_model.safetensors",
                                    "vae/config.json",
                                    "vae/diffusion_pytorch_model.safetensors"};
enum { FILE_COUNT = sizeof FILES / sizeof *FILES };

static void make_model(const char *dir, const char *class_name) {
    char index[200];
    snprintf(index, sizeof index, "{\"_class_name\":\"%s\"}", class_name);
    expect_text(dir, "model_index.json", index);
    for (int i = 0; i < FILE_COUNT; i++)
        expect_text(dir, FILES[i],
                    strstr(FILES[i], "index") ? "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
                                                "\"b\":\"model-00002-of-00002.safetensors\"}}"
                    : strstr(FILES[i], "transformer/config") ? "{\"in_channels\":64,\"guidance_embeds\":true}"
                                                             : "{}");
}

static void resolve_to(const HubEnv *env, const char *model, const char *want) {
    char *folder;
    Error e;
    expect_ok(hub_resolve(env, model, &folder, &e), &e);
    expect(folder && !strcmp(folder, want));
    free(folder);
}

static void refuse(const HubEnv *env, const char *model, const char *part) {
    char *folder;
    Error e;
    expect_status(hub_resolve(env, model, &folder, &e), ERR_MODEL, part, &e);
    expect(folder == NULL);
}

static char *variable(const char *name) {
    static const char *const VALUES[][2] = {{"A", "/x"}, {"B_1", ""}, {"C", "$A"}, {"D", "longer than the name"}};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, VALUES[i][0])) return (char *)(uintptr_t)VALUES[i][1];
    return NULL;
}

static void cache_folders(void) {
    static const struct {
        const char *hub, *old, *hf, *xdg, *home, *want;
    } ROWS[] = {
        {"/a", NULL, "/b", "/c", "/d", "/a"},
        {"", NULL, "/b", "/c", "/d", "/b/hub"},
        {NULL, NULL, NULL, "/c", "/d", "/c/huggingface/hub"},
        {NULL, NULL, NULL, NULL, "/d", "/d/.cache/huggingface/hub"},
        {NULL, NULL, "", "", "", NULL},
        /* from here on what huggingface_hub's constants.py says to the same values */
        {NULL, "/o", "/b", "/c", "/d", "/o"},
        {"/a", "/o", "/b", "/c", "/d", "/a"},
        {NULL, NULL, "~/hf", NULL, "/d", "/d/hf/hub"},
        {NULL, NULL, "~", NULL, "/d/", "/d/hub"},
        {"~/hf", NULL, NULL, NULL, "/d", "/d/hf"},
        {NULL, "~/old", NULL, NULL, "/d", "/d/old"},
        {NULL, NULL, NULL, "~/c", "/d", "/d/c/huggingface/hub"},
        {NULL, NULL, "~root/hf", NULL, "/d", "/" "root/hf/hub"}, /* in two: lint takes it for a path of one machine */
        {NULL, NULL, "~no one/hf", NULL, "/d", "~no one/hf/hub"},
        {NULL, NULL, "a~/hf", NULL, "/d", "a~/hf/hub"},
        {NULL, NULL, "$A/hf", NULL, "/d", "/x/hf/hub"},
        {"${A}b${B_1}c", NULL, NULL, NULL, "/d", "/xbc"},
        {"$B_1", NULL, NULL, NULL, "/d", ""},
        {"$B_1$A$C", NULL, NULL, NULL, "/d", "/x$A"},
        {NULL, NULL, "$C", NULL, "/d", "/x/hub"},
        {"/$D/$E/${F/$", NULL, NULL, NULL, "/d", "/longer than the name/$E/${F/$"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const HubEnv env = {.hub_cache = ROWS[i].hub, .old_cache = ROWS[i].old, .hf_home = ROWS[i].hf,
                            .xdg_cache = ROWS[i].xdg, .home = ROWS[i].home, .variable = variable};
        char *got = hub_cache_folder(&env);
        expect(ROWS[i].want ? got && !strcmp(got, ROWS[i].want) : !got);
        if (ROWS[i].want && got && strcmp(got, ROWS[i].want)) printf("row %zu: %s\n", i, got);
        free(got);
    }
    char *got = hub_cache_folder(&(HubEnv){.hf_home = "~/$A"}); /* neither a home nor variables */
    expect(got && !strcmp(got, "~/$A/hub"));
    free(got);
}

static void naming(const char *base) {
    char dir[300], cache[300];
    HubEnv env = {.hub_cache = cache};
    snprintf(dir, sizeof dir, "%s/plain %%s \xc3\x9c", base);
    snprintf(cache, sizeof cache, "%s/hub", base);
    make_model(dir, "FluxPipeline");
    resolve_to(&env, dir, dir);
    refuse(&env, "black-forest-labs/FLUX.1-dev",
           "hf download black-forest-labs/FLUX.1-dev --include \"[mstv]*\" (gated: first");
    refuse(&env, "black-forest-labs/FLUX.1-schnell",
           "hf download black-forest-labs/FLUX.1-schnell --include \"[mstv]*\"");
    char *folder;
    Error e;
    expect(hub_resolve(&env, "black-forest-labs/FLUX.1-schnell", &folder, &e) == ERR_MODEL &&
           !strstr(e.text, "gated"));
}

static void cached(const char *base) {
    char cache[300], repository[400], snapshot[500], path[700], blob[700];
    HubEnv env = {.hub_cache = cache};
    snprintf(cache, sizeof cache, "%s/hub", base);
    snprintf(repository, sizeof repository, "%s/models--some-one--Tuned--v2.1", cache);
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/0123abc", repository);
    refuse(&env, "some-one/Tuned--v2.1", "not in the hub cache (");
    refuse(&env, "some-one/Tuned--v2.1",
           "fetch it with: hf download some-one/Tuned--v2.1 --include \"[mstv]*\"");
    make_model(snapshot, "FluxPipeline");
    resolve_to(&env, "some-one/Tuned--v2.1", snapshot); /* no refs/main, one snapshot */
    expect_text(repository, "snapshots/9999/model_index.json", "{}");
    refuse(&env, "some-one/Tuned--v2.1", "2 snapshots");
    expect_text(repository, "refs/main", "0123abc\n");
    resolve_to(&env, "some-one/Tuned--v2.1", snapshot);
    resolve_to(&env, repository, snapshot); /* the cache folder itself */
    resolve_to(&env, snapshot, snapshot);
    expect_text(repository, "refs/main", "../x");
    refuse(&env, "some-one/Tuned--v2.1", "expected a commit name");
    expect_text(repository, "refs/main", "0123abd");
    refuse(&env, "some-one/Tuned--v2.1", "interrupted download");
    expect_text(repository, "refs/main", "0123abc");
    /* files are links into blobs; a dangling one is a missing file, and the line names this repository */
    snprintf(path, sizeof path, "%s/vae/diffusion_pytorch_model.safetensors", snapshot);
    snprintf(blob, sizeof blob, "%s/blobs/77", repository);
    unlink(path);
    expect(symlink(blob, path) == 0);
    refuse(&env, snapshot,
           "missing vae/diffusion_pytorch_model.safetensors; fetch with: hf download some-one/Tuned--v2.1 "
           "--include \"vae/*\"");
    expect_text(repository, "blobs/77", "{}");
    resolve_to(&env, snapshot, snapshot);
    env = (HubEnv){.hub_cache = base};
    refuse(&env, "some-one/Tuned--v2.1", "not in the hub cache");
    env = (HubEnv){0};
    refuse(&env, "some-one/Tuned", "HOME is not set");
    static const char *const ODD[] = {"nothing", "./a/b", "a/b/c", "/a/b",  "a/",
                                      "/a",      "../a",  "a/.b",  "a b/c", ""};
    for (size_t i = 0; i < sizeof ODD / sizeof *ODD; i++) refuse(&env, ODD[i], "no such folder; give");
}

static void incomplete(const char *base) {
    char dir[300], path[1000], want[1400];
    HubEnv env = {0};
    snprintf(dir, sizeof dir, "%s/incomplete", base);
    make_model(dir, "FluxPipeline");
    Error e;
    for (int i = 0; i < FILE_COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        char *text;
        size_t size;
        expect_ok(file_read(path, &text, &size, &e), &e);
        unlink(path);
        /* a missing index makes the single file the one that is missed; vocab.json is missed before merges.txt */
        snprintf(want, sizeof want,
                 "missing %s; fetch, unless this folder came from elsewhere, with: hf download "
                 "black-forest-labs/FLUX.1-dev --include \"%.*s/*\" --local-dir '%s' (gated",
                 i == 4 ? "text_encoder_2/model.safetensors" : FILES[i], (int)strcspn(FILES[i], "/"),
                 FILES[i], dir);
        expect_status(hub_complete(dir, &e), ERR_MODEL, want, &e);
        expect_write(dir, FILES[i], text, size);
        free(text);
        expect_ok(hub_complete(dir, &e), &e);
    }
    snprintf(path, sizeof path, "rm -r '%s/vae' '%s/text_encoder_2' '%s/tokenizer'", dir, dir, dir);
    expect(system(path) == 0);
    refuse(&env, dir,
           "missing text_encoder_2/config.json, text_encoder_2/model.safetensors, tokenizer/vocab.json and 2 "
           "more;");
    refuse(&env, dir, "--include \"[mstv]*\" --local-dir");
    expect_text(dir, "transformer/config.json", "{\"guidance_embeds\":false}");
    refuse(&env, dir, "hf download black-forest-labs/FLUX.1-schnell --include");
    expect(hub_complete(dir, &e) == ERR_MODEL && !strstr(e.text, "gated"));
    expect_text(dir, "text_encoder_2/model.safetensors.index.json", "<html>");
    refuse(&env, dir, "model.safetensors.index.json: not valid JSON");
    make_model(dir, "FluxPipeline");
    snprintf(path, sizeof path, "%s/tokenizer/vocab.json", dir);
    unlink(path);
    expect_text(dir, "tokenizer/tokenizer.json", "{}"); /* either form will do */
    resolve_to(&env, dir, dir);
}

static void classes(const char *base) {
    static const struct {
        const char *name, *part;
    } ROWS[] = {{"FluxKontextPipeline", "FLUX.1 Kontext"},
                {"FluxFillPipeline", "FLUX.1 Fill"},
                {"FluxPriorReduxPipeline", "FLUX.1 Redux"},
                {"FluxControlPipeline", "Canny or Depth"},
                {"FluxControlNetPipeline", "ControlNet"},
                {"Flux2Pipeline", "FLUX.2"},
                {"Flux2KleinPipeline", "FLUX.2"},
                {"ChromaPipeline", "Chroma"},
                {"FluxInpaintPipeline", "inpainting"},
                {"ZImageOmniPipeline", "Z-Image Omni"},
                {"ZImageImg2ImgPipeline", "Z-Image set up for image-to-image"},
                {"ZImageInpaintPipeline", "Z-Image set up for inpainting"},
                {"ZImageControlNetPipeline", "Z-Image with a ControlNet"},
                {"FluxImg2ImgPipeline", "image-to-image"},
                {"StableDiffusionXLPipeline",
                 "pipeline class StableDiffusionXLPipeline is not supported; supported: FluxPipeline"},
                {"FluxPipelineX", "pipeline class FluxPipelineX"},
                {"fluxpipeline", "not supported"}};
    char dir[300];
    HubEnv env = {0};
    snprintf(dir, sizeof dir, "%s/classes", base);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        make_model(dir, ROWS[i].name);
        refuse(&env, dir, ROWS[i].part);
        refuse(&env, dir, "supported: FluxPipeline (FLUX.1-dev");
    }
    make_model(dir, "FluxPipeline");
    static const struct {
        const char *file, *text, *part;
    } CONFIGS[] = {{"transformer/config.json", "{\"in_channels\":384,\"out_channels\":64}", "FLUX.1 Fill"},
                   {"transformer/config.json", "{\"in_channels\":128,\"out_channels\":64}", "Canny, Depth"},
                   {"transformer/config.json", "{\"_class_name\":\"ChromaTransformer2DModel\"}",
                    "class ChromaTransformer2DModel"},
                   {"transformer/config.json",
                    "{\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}}",
                    "quantised weights (bitsandbytes)"},
                   {"text_encoder_2/config.json", "{\"quantization_config\":{}}", "quantised"},
                   {"transformer/config.json", "{\"in_channels\":\"64\"}", "in_channels: found \"64\""},
                   {"vae/config.json", "{", "not valid JSON"},
                   {"vae/config.json", "", "not valid JSON"},
                   {"model_index.json", "{}", "no \"_class_name\""},
                   {"model_index.json", "", "not valid JSON"},
                   {"model_index.json", "[]", "expected a JSON object"},
                   {"model_index.json", "{\"_class_name\":7}", "found 7"}};
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        make_model(dir, "FluxPipeline");
        expect_text(dir, CONFIGS[i].file, CONFIGS[i].text);
        refuse(&env, dir, CONFIGS[i].part);
        refuse(&env, dir, CONFIGS[i].file);
    }
    make_model(dir, "FluxPipeline");
    expect_text(dir, "transformer/config.json",
                "{\"in_channels\":32}"); /* other sizes are the model's business */
    resolve_to(&env, dir, dir);
}

static void single_files(const char *base) {
#define QKV T("double_blocks.0.img_attn.qkv.weight", "BF16", "[2]", 0, 4)
    static const struct {
        const char *header;
        size_t payload;
        const char *part;
    } ROWS[] = {{"{" QKV "," T("guidance_in.in_layer.bias", "F32", "[1]", 4, 8) "}", 8,
                 "single-file FLUX.1-dev (or Kontext, Krea: same "
                 "tensors) with BFL tensor names, which ditto does not read; use the diffusers folder: hf "
                 "download black-forest-labs/FLUX.1-dev"},
                {"{" QKV "}", 4,
                 "single-file FLUX.1-schnell with BFL tensor names, which ditto does not read; use the "
                 "diffusers folder: hf "
                 "download black-forest-labs/FLUX.1-schnell"},
                {"{" T("model.diffusion_model.double_blocks.0.img_attn.qkv.weight", "F16", "[2]", 0,
                       4) "," T("vae.decoder.conv_in.weight", "F32", "[1]", 4, 8) "}",
                 8, "FLUX.1-schnell, all-in-one, with ComfyUI tensor names"},
                {"{" QKV "," T("img_in.weight", "F8_E4M3", "[1,384]", 4, 388) "}", 388,
                 "single-file FLUX.1 Fill in fp8 with BFL"},
                {"{" QKV "," T("img_in.weight", "U8", "[1,128]", 4, 132) "}", 132,
                 "single-file FLUX.1 Canny or Depth with BFL"},
                {"{" T("double_blocks.0.img_attn.qkv.weight", "F8_E4M3", "[4]", 0,
                       4) "," T("scaled_fp8", "F8_E4M3", "[0]", 4, 4) "}",
                 4, "FLUX.1-schnell in scaled fp8 with BFL"},
                {"{" T("double_blocks.0.img_attn.qkv.weight", "U8", "[4]", 0,
                       4) "," T("double_blocks.0.img_attn.qkv.weight.absmax", "F32", "[1]", 4, 8) "}",
                 8, "in a quantised format"},
                {ONE("single_stream_modulation.lin.weight"), 4, "FLUX.2, another architecture"},
                {ONE("single_stream_modulation.linear.weight"), 4, "FLUX.2, another architecture"},
                {ONE("distilled_guidance_layer.in_proj.weight"), 4, "Chroma, another"},
                {"{" T("noise_refiner.0.attention.qkv.weight", "F32", "[1]", 0, 4) "," T(
                     "layers.0.adaLN_modulation.0.weight", "F32", "[1]", 4, 8) "}",
                 8, "a Z-Image transformer in ComfyUI names"},
                {ONE("transformer.transformer_blocks.0.attn.to_q.lora_A.weight"), 4, "a LoRA"},
                {ONE("lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight"), 4, "a LoRA"},
                {ONE("diffusion_model.double_blocks.0.img_attn.qkv.lora_B.weight"), 4, "a LoRA"},
                {ONE("lycoris_blocks_0.lokr_w1"), 4, "a LoRA"},
                {ONE("odd"), 4, "unknown content (1 tensors, the first is odd)"},
                {ONE("transformer_blocks.0.attn.to_q.weight"), 4,
                 "a FLUX.1 transformer in diffusers names, one part"},
                {ONE("decoder.up.0.block.0.conv1.weight"), 4, "a VAE alone"},
                {ONE("text_model.encoder.layers.0.mlp.fc1.bias"), 4, "a text encoder alone"},
                {ONE("encoder.block.0.layer.0.SelfAttention.q.weight"), 4, "a text encoder alone"},
                {"{}", 0, "unknown content (0 tensors, the first is none)"}};
    char path[400];
    HubEnv env = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        expect_safetensors_file(base, "single/x.safetensors", ROWS[i].header, ROWS[i].payload);
        snprintf(path, sizeof path, "%s/single/x.safetensors", base);
        refuse(&env, path, ROWS[i].part);
        snprintf(path, sizeof path, "%s/single", base); /* the folder that holds only this file */
        refuse(&env, path, ROWS[i].part);
    }
    refuse(&env, expect_write(base, "flux.gguf", "GGUF\3\0\0\0\0\0\0\0", 12), "is a GGUF file");
    refuse(&env, expect_text(base, "a/model_index.json", "{}"), "give the folder that holds this file");
    expect_text(base, "lora/adapter_config.json", "{}");
    snprintf(path, sizeof path, "%s/lora", base);
    refuse(&env, path, "a LoRA adapter folder");
    expect_text(base, "part/config.json", "{}");
    snprintf(path, sizeof path, "%s/part", base);
    refuse(&env, path, "one part of a model; give the folder above it");
    expect_text(base, "void/readme", "");
    snprintf(path, sizeof path, "%s/void", base);
    refuse(&env, path, "no model_index.json, so no diffusers model folder; supported: FluxPipeline");
}

int main(void) {
    char folder[256];
    expect_folder(folder, sizeof folder);
    cache_folders();
    naming(folder);
    cached(folder);
    incomplete(folder);
    classes(folder);
    single_files(folder);
    expect_cleanup(folder);
    return expect_done();
}
