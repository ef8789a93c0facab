/* test_sha256.c - SHA-256 against the examples of FIPS 180-4 (NIST's example values), every length around the padding's
 * edges in pieces and at once, and files.
 * Easy to get wrong: the published vectors alone never split a message; the pieces do. */
#include "core/sha256.h"

#include "expect.h"

static void vectors(void) {
    static const struct { const char *text, *sum; } CASE[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
         "nopqrstu", "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char text[SHA256_TEXT];
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        sha256_memory(CASE[i].text, strlen(CASE[i].text), text);
        expect(!strcmp(text, CASE[i].sum));
    }
    Sha256 s; /* one million times "a" */
    uint8_t digest[SHA256_BYTES];
    char a[1000];
    memset(a, 'a', sizeof a);
    sha256_begin(&s);
    for (int i = 0; i < 1000; i++) sha256_add(&s, a, sizeof a);
    sha256_end(&s, digest);
    sha256_text(digest, text);
    expect(!strcmp(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

/* The sum of the sums of messages 0..199 bytes long, as Python's hashlib makes it: sha256(b"".join(...)). */
static void lengths(void) {
    uint8_t bytes[200], digest[SHA256_BYTES];
    for (int i = 0; i < 200; i++) bytes[i] = (uint8_t)(i * 7 + 1);
    Sha256 all;
    sha256_begin(&all);
    for (size_t n = 0; n < 200; n++) {
        char whole[SHA256_TEXT], parts[SHA256_TEXT];
        sha256_memory(bytes, n, whole);
        for (size_t step = 1; step < 130; step += 17) {
            Sha256 s;
            sha256_begin(&s);
            for (size_t at = 0; at < n; at += step) sha256_add(&s, bytes + at, n - at < step ? n - at : step);
            sha256_end(&s, digest);
            sha256_text(digest, parts);
            if (strcmp(whole, parts)) break;
        }
        expect(!strcmp(whole, parts));
        sha256_add(&all, digest, sizeof digest);
    }
    char text[SHA256_TEXT];
    sha256_end(&all, digest);
    sha256_text(digest, text);
    expect(!strcmp(text, "c35f81543da6e2384825e12b996f63d2d2a652971625973989db4ef4660e027b"));
}

static void files(void) {
    char folder[300], text[SHA256_TEXT], want[SHA256_TEXT];
    uint64_t size = 1;
    Error e = {0};
    expect_folder(folder, sizeof folder);
    enum { N = (5 << 20) / 2 + 3 }; /* pieces of a megabyte, and a rest */
    char *bytes = malloc(N);
    if (!bytes) abort();
    for (size_t i = 0; i < N; i++) bytes[i] = (char)(i * i >> 7);
    sha256_memory(bytes, N, want);
    const char *path = expect_write(folder, "big", bytes, N);
    expect_ok(sha256_file(path, text, &size, NULL, &e), &e);
    expect(size == N && !strcmp(text, want));
    volatile int stop = 1;
    expect_status(sha256_file(path, text, &size, &stop, &e), ERR_INTERRUPTED, "interrupted", &e);
    path = expect_write(folder, "empty", "", 0);
    expect_ok(sha256_file(path, text, &size, NULL, &e), &e);
    expect(!size && !strncmp(text, "e3b0c44298fc1c14", 16));
    expect_status(sha256_file(folder, text, &size, NULL, &e), ERR_IO, folder, &e);
    expect_status(sha256_file("no/such/file", text, &size, NULL, &e), ERR_IO, "no/such/file: cannot open", &e);
    free(bytes);
    expect_cleanup(folder);
}

int main(void) {
    vectors();
    lengths();
    files();
    return expect_done();
}
