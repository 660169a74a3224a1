/* The library as a LADSPA plugin, for PipeWire, Audacity, Ardour, sox: one channel, or two that share one mask. */

#include <ladspa.h>

#include "plugin.h"

static LADSPA_Handle open_mono(const LADSPA_Descriptor *descriptor, unsigned long rate) {
    (void)descriptor;
    return open_plugin((double)rate, 1);
}

static LADSPA_Handle open_stereo(const LADSPA_Descriptor *descriptor, unsigned long rate) {
    (void)descriptor;
    return open_plugin((double)rate, 2);
}

static void connect_port(LADSPA_Handle plugin, unsigned long port, LADSPA_Data *at) { connect_plugin(plugin, port, at); }
static void activate(LADSPA_Handle plugin) { drnmf_reset(((Plugin *)plugin)->enhancer); }
static void run(LADSPA_Handle plugin, unsigned long n) { run_plugin(plugin, n); }
static void cleanup(LADSPA_Handle plugin) { close_plugin(plugin); }

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
