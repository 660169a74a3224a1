/* What the plugins have in common, LADSPA's and LV2's: ports, controls, sound.
 *
 * The model is compiled in. The environment variable DRNMF_MODEL names another file, by `drnmf export --c`.
 */

#include <math.h>
#include <stdlib.h>

#include "drnmf.h"

enum { STRENGTH, ATTENUATION, LATENCY, SOUND }; /* ports: the controls, then all inputs, then all outputs */
enum { MOST_CHANNELS = 2, MOST_PORTS = SOUND + 2 * MOST_CHANNELS, BLOCK = 64 };
#define NO_LIMIT 100.0f /* dB */

typedef struct {
    drnmf *enhancer;
    int channels;
    float *ports[MOST_PORTS];
} Plugin;

static Plugin *open_plugin(double rate, int channels) {
    Plugin *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->channels = channels;
    if (!(rate <= 1e6) || drnmf_open(&p->enhancer, getenv("DRNMF_MODEL"), (int)rate, channels)) {
        free(p);
        return NULL;
    }
    return p;
}

static void connect_plugin(Plugin *p, unsigned long port, float *at) {
    if (port < MOST_PORTS) p->ports[port] = at;
}

static float clamped(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

static void set_controls(Plugin *p) {
    const float *strength = p->ports[STRENGTH], *attenuation = p->ports[ATTENUATION];
    if (strength) drnmf_set_strength(p->enhancer, clamped(*strength, 0, 1)); /* NaN is refused: the last value holds */
    if (attenuation)
        drnmf_set_max_attenuation(p->enhancer, *attenuation >= NO_LIMIT ? INFINITY : clamped(*attenuation, 0, NO_LIMIT));
    if (p->ports[LATENCY]) *p->ports[LATENCY] = (float)drnmf_latency(p->enhancer);
}

static void run_plugin(Plugin *p, unsigned long n) {
    const int C = p->channels;
    float *const *in = p->ports + SOUND, *const *out = in + C;
    float block[BLOCK * MOST_CHANNELS];
    set_controls(p);
    for (unsigned long done = 0, some; done < n; done += some) {
        some = n - done < BLOCK ? n - done : BLOCK;
        for (unsigned long i = 0; i < some; i++)
            for (int c = 0; c < C; c++) block[i * C + c] = in[c][done + i];
        drnmf_process(p->enhancer, block, block, some);
        for (unsigned long i = 0; i < some; i++)
            for (int c = 0; c < C; c++) out[c][done + i] = block[i * C + c];
    }
}

static void close_plugin(Plugin *p) {
    drnmf_close(p->enhancer);
    free(p);
}
