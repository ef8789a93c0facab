/* test_tuned.c - core/tuned.h: what is written is read again, lines of other machines stay and are not found, and every
 * damage to the file, one byte or one cut at a time, leaves nothing of it in use and one line that names it.
 * Easy to get wrong: a damaged number that still parses is damage too; only the sum tells. */
#include "core/tuned.h"

#include "core/file.h"
#include "expect.h"

static const char HERE[] = "NVIDIA H200, driver 13000, cuBLAS 130100", THERE[] = "NVIDIA A100, driver 13000, cuBLAS 130100";

static char *contents(const char *path, size_t *size) {
    char *text = NULL;
    Error e = {0};
    expect_ok(file_read(path, &text, size, &e), &e);
    return text;
}

int main(void) {
    Error e = {0};
    char folder[300], path[400], note[600], label[32];
    snprintf(path, sizeof path, "%s/above/below/tuned.tsv", expect_folder(folder, sizeof folder));
    Tuned t;
    unsigned char key[TUNED_KEY], value[TUNED_VALUE];
    for (size_t i = 0; i < sizeof key; i++) key[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof value; i++) value[i] = (unsigned char)(200 + i);

    expect_ok(tuned_open(&t, "tuned", THERE, &e), &e);
    expect_ok(tuned_read(&t, path, note, sizeof note, &e), &e);
    expect(!note[0] && t.count == 0); /* no file is no fault */
    expect_ok(tuned_put(&t, key, 8, value, sizeof value, "there", 10, 9, &e), &e);
    expect_ok(tuned_write(&t, path, &e), &e); /* makes both folders */
    tuned_close(&t);

    expect_ok(tuned_open(&t, "tuned", HERE, &e), &e);
    expect_ok(tuned_read(&t, path, note, sizeof note, &e), &e);
    expect(!note[0] && t.count == 1 && !tuned_find(&t, key, 8));
    for (int i = 0; i < 100; i++) {
        key[0] = (unsigned char)i;
        snprintf(label, sizeof label, "M %d", i);
        expect_ok(tuned_put(&t, key, sizeof key, value, sizeof value, label, i + 0.25, i, &e), &e);
    }
    key[0] = 7;
    value[0] = 1;
    expect_ok(tuned_put(&t, key, sizeof key, value, sizeof value, "M 7 again", 3, 2, &e), &e);
    expect(t.count == 101);
    tuned_drop(&t, key, 9); /* nobody's */
    key[0] = 8;
    tuned_drop(&t, key, sizeof key);
    expect(t.count == 100 && !tuned_find(&t, key, sizeof key));
    expect_ok(tuned_write(&t, path, &e), &e);
    tuned_close(&t);

    expect_ok(tuned_open(&t, "tuned", HERE, &e), &e);
    expect_ok(tuned_read(&t, path, note, sizeof note, &e), &e);
    key[0] = 7;
    const TunedEntry *n = tuned_find(&t, key, sizeof key);
    expect(!note[0] && t.count == 100 && n && n->value[0] == 1 && n->value[63] == (unsigned char)(200 + 63));
    expect(n && n->value_size == sizeof value && n->first == 3 && n->best == 2 && !strcmp(n->label, "M 7 again"));
    key[0] = 8;
    expect(!tuned_find(&t, key, sizeof key));
    tuned_close(&t);
    expect_ok(tuned_open(&t, "tuned", THERE, &e), &e);
    expect_ok(tuned_read(&t, path, note, sizeof note, &e), &e);
    key[0] = 0;
    expect(tuned_find(&t, key, 8) && !tuned_find(&t, key, sizeof key));
    tuned_close(&t);

    /* damage: a byte of every tenth, and every length */
    size_t size;
    char *good = contents(path, &size), bad[500];
    int used = 0, silent = 0, tried = 0;
    snprintf(bad, sizeof bad, "%s/bad.tsv", folder);
    for (size_t i = 0; i + 1 < size; i += i < 1200 ? 1 : 97) {
        for (int cut = 0; cut < 2; cut++) {
            char old = good[i];
            if (!cut) good[i] = old == '5' ? '6' : '5';
            expect_write(folder, "bad.tsv", good, cut ? i : size);
            good[i] = old;
            if (cut && i && good[i - 1] == '\n') continue; /* whole lines: a shorter file, not a damaged one */
            expect_ok(tuned_open(&t, "tuned", HERE, &e), &e);
            if (tuned_read(&t, bad, note, sizeof note, &e) != OK) silent++;
            used += t.count;
            silent += !note[0] || strchr(note, '\n') != NULL;
            tried++;
            tuned_close(&t);
        }
    }
    expect(used == 0 && silent == 0 && tried > 2000);
    free(good);

    expect_ok(tuned_open(&t, "tuned", HERE, &e), &e);
    expect_ok(tuned_read(&t, folder, note, sizeof note, &e), &e);
    expect(strstr(note, "it is not used") != NULL); /* a folder */
    expect_status(tuned_write(&t, "/proc/nowhere/tuned.tsv", &e), ERR_IO, "/proc/nowhere", &e);
    tuned_close(&t);
    expect_cleanup(folder);
    return expect_done();
}
