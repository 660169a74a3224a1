/* What can only be checked from C; `tests/use/test_c_library.py` runs it.
 *
 *     checks realtime MODEL     process neither allocates nor calls the system
 *     checks instances MODEL N  4 N at once, in threads, each as if it were alone
 *     checks hostile MODEL      files with any number changed are refused, or give sound that is finite
 */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "drnmf.h"

#define CHECK(condition) \
    if (!(condition)) fprintf(stderr, "checks.c:%d: not %s\n", __LINE__, #condition), exit(1)

enum { SAMPLES = 20000, HEAD = 80, SUMS_AT = 64, THREADS = 4, MOST_EACH = 250, KINDS = 5 };

static const int rates[KINDS] = {16000, 48000, 8000, 96000, 44100};

/* Something like a voice in noise, the same every time. */
static float sound(int64_t n) {
    uint32_t noise = (uint32_t)n * 2654435761u;
    noise = (noise ^ noise >> 15) * 2246822519u;
    const double t = n / 16000.0, voice = sin(700 * t) + sin(1400 * t) + sin(2100 * t);
    return (float)(0.1 * voice * (1 + sin(12 * t)) + 0.1 * ((noise >> 8) / 8388608.0 - 1));
}

static char *content;
static size_t bytes;

static void read_content(const char *path) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    content = malloc(1 << 24);
    CHECK(content);
    bytes = fread(content, 1, 1 << 24, file);
    fclose(file);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
/* In strict mode the kernel kills a process at any call but read, write and exit; a pool of malloc's own would not show,
 * so that malloc is replaced. */
static volatile int forbidden, allocations;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);
void *malloc(size_t n) {
    allocations += forbidden;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    allocations += forbidden;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    allocations += forbidden;
    return __libc_realloc(p, n);
}
void free(void *p) {
    allocations += forbidden;
    __libc_free(p);
}

static int realtime(void) {
    static float block[2 * SAMPLES];
    drnmf *d[2 * KINDS];
    for (int i = 0; i < 2 * KINDS; i++) CHECK(!drnmf_open_memory(d + i, content, bytes, rates[i / 2], 1 + i % 2));
    forbidden = 1;
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    for (int i = 0; i < 2 * KINDS; i++)
        for (int n = 1, done = 0; done + n < SAMPLES; done += n, n = n * 3 % 1009) {
            for (int j = 0; j < n * (1 + i % 2); j++) block[j] = sound(done + j);
            block[0] = done % 7 ? block[0] : NAN; /* mending allocates nothing either */
            drnmf_process(d[i], block, block, n);
            drnmf_set_strength(d[i], 0.5f);
            drnmf_set_max_attenuation(d[i], 12);
            drnmf_keep_atom(d[i], n % drnmf_atoms(d[i]), n % 2);
            drnmf_go_on_with(d[i], d[0]);
            if (n == 9) drnmf_reset(d[i]);
        }
    const char *text = allocations ? "process allocates\n" : "ok\n";
    const ssize_t written = write(1, text, strlen(text));
    return (int)syscall(SYS_exit, allocations || written < 0); /* exit's own call is not allowed */
}
#else
static int realtime(void) { return printf("skipped: needs Linux, without sanitizers\n"), 0; }
#endif

static float expected[KINDS][SAMPLES];
static int each;

static int kind(int i) { return i % 50 ? i % (KINDS - 1) : KINDS - 1; } /* the last takes long to open */

static void *in_thread(void *of) {
    drnmf *d[MOST_EACH];
    int done[MOST_EACH] = {0}, busy = 1, *failed = of;
    for (int i = 0; i < each; i++)
        *failed |= drnmf_open_memory(d + i, content, bytes, rates[kind(i)], 1) != DRNMF_OK;
    for (int round = 0; busy && !*failed; round++) { /* some of each, then more of each */
        busy = 0;
        for (int i = 0; i < each; i++) {
            float block[256];
            int n = 1 + (i * 37 + round * 101) % 256;
            const int end = 700;
            n = n < end - done[i] ? n : end - done[i];
            for (int j = 0; j < n; j++) block[j] = sound(done[i] + j);
            *failed |= drnmf_process(d[i], block, block, n);
            *failed |= memcmp(block, expected[kind(i)] + done[i], n * sizeof *block) != 0;
            done[i] += n;
            busy |= done[i] < end;
        }
    }
    for (int i = 0; i < each; i++) drnmf_close(d[i]);
    return NULL;
}

static int instances(void) {
    pthread_t threads[THREADS];
    int failed[THREADS] = {0};
    for (int k = 0; k < KINDS; k++) {
        drnmf *d;
        CHECK(!drnmf_open_memory(&d, content, bytes, rates[k], 1));
        for (int i = 0; i < SAMPLES; i++) expected[k][i] = sound(i);
        CHECK(!drnmf_process(d, expected[k], expected[k], SAMPLES));
        drnmf_close(d);
    }
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(threads + i, NULL, in_thread, failed + i));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) CHECK(!failed[i]);
    return puts("ok"), 0;
}

/* Make the checksum fit what was changed: then the other checks must hold. */
static void mend_sums(char *model, size_t n) {
    uint64_t sums[2] = {0, 0};
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint32_t word;
        if (i == SUMS_AT) i = HEAD;
        memcpy(&word, model + i, sizeof word);
        sums[0] += word, sums[1] += sums[0];
    }
    memcpy(model + SUMS_AT, sums, sizeof sums);
}

/* What a model learns can be opened, or is refused. */
static void try_to_learn(drnmf *d) {
    float noise[5000];
    char *model = malloc(drnmf_model_bytes(d));
    drnmf *learned;
    CHECK(model);
    for (int i = 0; i < 5000; i++) noise[i] = sound(i);
    if (!drnmf_learn(d, noise, 5000, model)) {
        CHECK(!drnmf_open_memory(&learned, model, drnmf_model_bytes(d), 16000, 1));
        drnmf_close(learned);
    }
    free(model);
}

/* Whether a model is refused; if not, its sound must be finite. */
static int refused(const char *model, size_t n, int learns) {
    float block[1500];
    drnmf *d = (drnmf *)block;
    const int code = drnmf_open_memory(&d, model, n, 16000, 1);
    CHECK(!code == !!d);
    if (code) return 1;
    if (learns) try_to_learn(d);
    for (int i = 0; i < 1500; i++) block[i] = sound(i);
    const int mended = drnmf_process(d, block, block, 1500);
    CHECK(mended == DRNMF_OK || mended == DRNMF_DIVERGED);
    for (int i = 0; i < 1500; i++) CHECK(isfinite(block[i]));
    drnmf_close(d);
    return 0;
}

static int hostile(void) {
    static const uint32_t words[] = {0, 1, 255, 257, 4096, 65535, 0x7fffffff, 0x80000000, 0xffffffff, 0x7f800000, 0x7fc00000};
    char *model = malloc(bytes); /* of its own length: a sanitizer sees one byte too far */
    CHECK(model);
    CHECK(!refused(content, bytes, 1));
    for (size_t n = 0; n < bytes; n += n < 2 * HEAD ? 1 : bytes / 9) { /* cut anywhere */
        char *cut = malloc(n + 1);
        CHECK(cut);
        memcpy(cut, content, n);
        CHECK(refused(cut, n, 0));
        free(cut);
    }
    for (size_t at = 0; at < HEAD; at += 4) /* any number of the head, without and with a checksum that fits */
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            memcpy(model, content, bytes);
            if (!memcmp(model + at, words + i, 4)) continue;
            memcpy(model + at, words + i, 4);
            CHECK(refused(model, bytes, 0));
            mend_sums(model, bytes);
            refused(model, bytes, 0);
        }
    for (int i = 0; i < 20; i++) { /* numbers that are enormous, or none */
        const float wild = i % 4 == 3 ? NAN : i % 4 == 2 ? -1e30f : i % 4 == 1 ? 3e38f : 1e10f;
        memcpy(model, content, bytes);
        for (size_t at = HEAD + 4 * i; at < bytes; at += 4 * (1 + (size_t)i * i * i)) memcpy(model + at, &wild, 4);
        CHECK(refused(model, bytes, 0));
        mend_sums(model, bytes);
        const int gone = refused(model, bytes, 1);
        CHECK(gone || i % 4 != 3);
    }
    free(model);
    return puts("ok"), 0;
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    read_content(argv[2]);
    each = argc > 3 ? atoi(argv[3]) : 1;
    CHECK(each > 0 && each <= MOST_EACH);
    if (!strcmp(argv[1], "realtime")) return realtime();
    const int code = !strcmp(argv[1], "instances") ? instances() : !strcmp(argv[1], "hostile") ? hostile() : 2;
    free(content);
    return code;
}
