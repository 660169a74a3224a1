/* The library as a LADSPA plugin, for PipeWire, EasyEffects, Audacity, OBS: one channel, or two that share one mask.
 *
 * The model is compiled in. The environment variable DRNMF_MODEL names another file, by `drnmf export --c`.
 */

#include <ladspa.h>
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

static LADSPA_Handle open_plugin(unsigned long rate, int channels) {
    Plugin *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->channels = channels;
    if (rate > 1000000 || drnmf_open(&p->enhancer, getenv("DRNMF_MODEL"), (int)rate, channels)) {
        free(p);
        return NULL;
    }
    return p;
}

static LADSPA_Handle open_mono(const LADSPA_Descriptor *descriptor, unsigned long rate) {
    (void)descriptor;
    return open_plugin(rate, 1);
}

static LADSPA_Handle open_stereo(const LADSPA_Descriptor *descriptor, unsigned long rate) {
    (void)descriptor;
    return open_plugin(rate, 2);
}

static void connect_port(LADSPA_Handle plugin, unsigned long port, LADSPA_Data *at) {
    if (port < MOST_PORTS) ((Plugin *)plugin)->ports[port] = at;
}

static void activate(LADSPA_Handle plugin) { drnmf_reset(((Plugin *)plugin)->enhancer); }

static float clamped(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

static void set_controls(Plugin *p) {
    const float *strength = p->ports[STRENGTH], *attenuation = p->ports[ATTENUATION];
    if (strength) drnmf_set_strength(p->enhancer, clamped(*strength, 0, 1)); /* NaN is refused: the last value holds */
    if (attenuation)
        drnmf_set_max_attenuation(p->enhancer, *attenuation >= NO_LIMIT ? INFINITY : clamped(*attenuation, 0, NO_LIMIT));
    if (p->ports[LATENCY]) *p->ports[LATENCY] = (float)drnmf_latency(p->enhancer);
}

static void run(LADSPA_Handle plugin, unsigned long n) {
    Plugin *p = plugin;
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

static void cleanup(LADSPA_Handle plugin) {
    drnmf_close(((Plugin *)plugin)->enhancer);
    free(plugin);
}

#define CONTROL_IN (LADSPA_PORT_CONTROL | LADSPA_PORT_INPUT)
#define SOUND_IN (LADSPA_PORT_AUDIO | LADSPA_PORT_INPUT)
#define SOUND_OUT (LADSPA_PORT_AUDIO | LADSPA_PORT_OUTPUT)
#define CONTROLS CONTROL_IN, CONTROL_IN, LADSPA_PORT_CONTROL | LADSPA_PORT_OUTPUT
#define NAMES "Strength", "Maximum attenuation (dB)", "latency" /* hosts know the last by its name */
#define BOUNDED (LADSPA_HINT_BOUNDED_BELOW | LADSPA_HINT_BOUNDED_ABOVE)

static const LADSPA_PortDescriptor mono_ports[] = {CONTROLS, SOUND_IN, SOUND_OUT};
static const LADSPA_PortDescriptor stereo_ports[] = {CONTROLS, SOUND_IN, SOUND_IN, SOUND_OUT, SOUND_OUT};
static const char *const mono_names[] = {NAMES, "Input", "Output"};
static const char *const stereo_names[] = {NAMES, "Input left", "Input right", "Output left", "Output right"};
static const LADSPA_PortRangeHint hints[MOST_PORTS] = {
    {BOUNDED | LADSPA_HINT_DEFAULT_MAXIMUM, 0, 1},
    {BOUNDED | LADSPA_HINT_DEFAULT_MAXIMUM, 0, NO_LIMIT},
};

#define DESCRIPTOR(id, label, name, kind, channels)                                                           \
    {                                                                                                         \
        .UniqueID = id, .Label = label, .Properties = LADSPA_PROPERTY_HARD_RT_CAPABLE, .Name = name,          \
        .Maker = "The drnmf authors", .Copyright = "MIT", .PortCount = SOUND + 2 * channels,                  \
        .PortDescriptors = kind##_ports, .PortNames = kind##_names, .PortRangeHints = hints,                  \
        .instantiate = open_##kind, .connect_port = connect_port, .activate = activate, .run = run,           \
        .cleanup = cleanup,                                                                                   \
    }

static const LADSPA_Descriptor descriptors[] = {
    DESCRIPTOR(7318101, "drnmf_mono", "Speech from noise (drnmf, mono)", mono, 1),
    DESCRIPTOR(7318102, "drnmf_stereo", "Speech from noise (drnmf, stereo)", stereo, 2),
};

#ifdef _WIN32
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
const LADSPA_Descriptor *ladspa_descriptor(unsigned long index) {
    return index < sizeof descriptors / sizeof *descriptors ? descriptors + index : NULL;
}
