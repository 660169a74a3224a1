/* Enhance raw sound from stdin to stdout: float, little-endian, one channel or interleaved.
 *
 *     ffmpeg -i noisy.wav -f f32le -ar 48000 -ac 1 - | drnmf-example default.drnmf 48000 > clean.f32
 *
 * As many samples come out as go in: the latency is taken off at the start and made up for at the end.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drnmf.h"

enum { MOST_CHANNELS = 64, BLOCK = 480 };

/* Write what lies beyond the first *late samples; whether that worked. */
static int write_late(const float *samples, size_t n, int channels, size_t *late) {
    const size_t skip = n < *late ? n : *late;
    *late -= skip;
    return fwrite(samples + skip * channels, sizeof(float) * channels, n - skip, stdout) == n - skip;
}

static int enhance(drnmf *d, int channels) {
    float block[BLOCK * MOST_CHANNELS];
    size_t late = drnmf_latency(d), n;
    int code = DRNMF_OK, written = 1;
    while (written && (n = fread(block, sizeof(float) * channels, BLOCK, stdin))) {
        const int now = drnmf_process(d, block, block, n);
        code = now ? now : code;
        written = write_late(block, n, channels, &late);
    }
    for (size_t rest = drnmf_latency(d); written && rest; rest -= n) {
        n = rest < BLOCK ? rest : BLOCK;
        memset(block, 0, sizeof block);
        drnmf_process(d, block, block, n);
        written = write_late(block, n, channels, &late);
    }
    if (code) fprintf(stderr, "drnmf: %s\n", drnmf_error(code));
    if (!written) fprintf(stderr, "drnmf: stdout cannot be written\n");
    return code || !written;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 6) {
        fprintf(stderr, "usage: %s MODEL [RATE] [CHANNELS] [STRENGTH] [MAX_ATTENUATION] < in.f32 > out.f32\n", argv[0]);
        return 2;
    }
    const char *model = strcmp(argv[1], "-") ? argv[1] : NULL; /* -: the one that is compiled in */
    const int channels = argc > 3 ? atoi(argv[3]) : 1;
    drnmf *d;
    int code = drnmf_open(&d, model, argc > 2 ? atoi(argv[2]) : 16000, channels);
    if (!code && argc > 4) code = drnmf_set_strength(d, (float)atof(argv[4]));
    if (!code && argc > 5) code = drnmf_set_max_attenuation(d, (float)atof(argv[5]));
    if (code)
        fprintf(stderr, "drnmf: %s: %s\n", argv[1], drnmf_error(code));
    else
        code = enhance(d, channels);
    drnmf_close(d);
    return code != 0;
}
