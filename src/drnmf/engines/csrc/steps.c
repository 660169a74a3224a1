/* DR-NMF on the CPU. `library.py` loads this; where it could not be compiled, PyTorch does the same. `arithmetic.h`
 * holds what is computed, `engine.h` what it is computed on.
 */

#include "engine.h"

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
EXPORT void *PyInit__steps(void) { return 0; } /* the linker asks for it, but this is no Python module */
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* How large the structures above are: a caller with other sizes was written for another version of this file. */
EXPORT int size_of_scan(void) { return sizeof(Scan); }
EXPORT int size_of_network(void) { return sizeof(Network); }
EXPORT int size_of_stream(void) { return sizeof(Stream); }

/* How many numbers and indices a stream of so many channels needs as room. */
EXPORT int64_t room_of_stream(const Network *network, int64_t channels) { return room_of(network, channels); }
EXPORT int64_t indices_of_stream(const Network *network) { return indices_of(network); }

/* Use 0, 1 or 2 sets of instructions beyond the baseline at most, AVX2 and AVX-512, for tests; how many are used. */
enum { used_baseline, used_avx2, used_avx512 };
EXPORT int allow_instructions(int most) {
    allowed = most;
    return BEST(used);
}

#define FUNCTIONS(real, type)                                                                                     \
    EXPORT int forward_##type(const Scan *scan, real *h) { return BEST(forward_##type)(scan, h); }                \
    EXPORT int backward_##type(const Scan *scan, const real *dh, real *ds, real *xg, real *sg) {                  \
        return BEST(backward_##type)(scan, dh, ds, xg, sg, 0);                                                    \
    }                                                                                                             \
    EXPORT int backward_frames_##type(const Scan *scan, const real *dh, real *ds, real *xg, real *sg, real *g) {  \
        return BEST(backward_##type)(scan, dh, ds, xg, sg, g);                                                    \
    }                                                                                                             \
    EXPORT int activations_##type(const Network *network, const real *x, int64_t T, real *state, real *h) {       \
        return BEST(activations_##type)(network, x, T, state, h);                                                 \
    }                                                                                                             \
    EXPORT int feed_##type(Stream *stream, int n) { return BEST(feed_##type)(stream, n); }

FUNCTIONS(float, f32)
FUNCTIONS(double, f64)
