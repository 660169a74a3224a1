/* The library as an LV2 plugin, for Ardour, Carla, Audacity: lv2/drnmf.ttl describes it. */

#include <lv2/core/lv2.h>
#include <string.h>

#include "plugin.h"

static LV2_Handle instantiate(const LV2_Descriptor *descriptor, double rate, const char *bundle,
                              const LV2_Feature *const *features) {
    (void)bundle, (void)features;
    return open_plugin(rate, strstr(descriptor->URI, "stereo") ? 2 : 1);
}

static void connect_port(LV2_Handle plugin, uint32_t port, void *at) { connect_plugin(plugin, port, at); }
static void activate(LV2_Handle plugin) { drnmf_reset(((Plugin *)plugin)->enhancer); }
static void run(LV2_Handle plugin, uint32_t n) { run_plugin(plugin, n); }
static void cleanup(LV2_Handle plugin) { close_plugin(plugin); }

#define DESCRIPTOR(name)                                                                    \
    {                                                                                       \
        .URI = "https://drnmf.github.io/drnmf/lv2/" name, .instantiate = instantiate,       \
        .connect_port = connect_port, .activate = activate, .run = run, .cleanup = cleanup, \
    }

static const LV2_Descriptor descriptors[] = {DESCRIPTOR("mono"), DESCRIPTOR("stereo")};

LV2_SYMBOL_EXPORT const LV2_Descriptor *lv2_descriptor(uint32_t index) {
    return index < sizeof descriptors / sizeof *descriptors ? descriptors + index : NULL;
}
