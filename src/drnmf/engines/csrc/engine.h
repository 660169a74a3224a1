/* What the engine works on, and `arithmetic.h` compiled for several instruction sets, of which BEST chooses when the
 * program runs: one binary fits all machines. Included once by `steps.c` for Python, once by `libdrnmf/drnmf.c`, which
 * takes sound in float alone (ONLY_STREAMS). Nothing here starts threads: sequences do not depend on each other, and the
 * caller spreads them over its processors.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#define ATTACK 0.1 /* of the running level: as in level.py */
#define RELEASE 0.999
#define SILENCE 1e-4
#define BOUND 4.0 /* of an expectation's logarithm: as in prior.py */
enum { WINDOW = 512, HOP = 128, BINS = WINDOW / 2 + 1, POINTS = WINDOW / 2 };

/* Matrices that a row of numbers is multiplied by lie in panels of as many columns as their N_step or F_step says, one
 * panel after the other, so that reading goes straight through memory. From a layer to the next it is W_layer numbers,
 * and so on.
 *
 * B sequences of T frames on their way through K layers in the Gram form: */
typedef struct {
    int64_t K, T, B, F, N, N_step, W_layer, A_layer;
    int64_t x_sequence, x_frame;         /* from a sequence of x to the next, and a frame; F numbers are together */
    int64_t h_sequence, h_frame, h_atom; /* likewise of h, or of dL/dh */
    const void *x;                       /* (B, T, F) */
    const void *W;                       /* (K, F, N), W_k / alpha_k */
    const void *A;                       /* (K, N, N), A_k = I - W_k^T W_k / alpha_k; backward its transpose */
    const void *threshold;               /* (K, N), lambda_k / alpha_k; or NULL: it is in H, for every frame its own */
    void *H;                             /* (K, 1 + T, B, N), all activations; H[-1, 0] is the state before */
} Scan;

/* A recurrent prior, with U units; U is 0 where there is none. */
typedef struct {
    int64_t U, listening, U_step, map_step; /* `listening` layers come before the K of the network */
    int64_t M;                              /* 2 N + 1: what the maps give */
    const void *sparsity;                   /* (listening + K, N), lambda */
    const void *heard;                      /* (N, 3 U), columns for the gates n, r, z */
    const void *memory;                     /* (U, 3 U), columns for the gates r, z, n */
    const void *bias;                       /* (4 U): heard n, r and z of both, remembered n */
    const void *maps;                       /* (U, M), to the logarithms of lambda's factor, the weight, the gain */
    const void *map_bias;                   /* (M) */
    const void *scale;                      /* (N), of the atoms in the mask */
} Prior;

/* A network as it acts on single frames. With a prior, A is -W^T W of its one dictionary, which is the mask's; `rate` is
 * that of all layers; W, atoms, threshold and h0 are not used. */
typedef struct {
    int64_t K, F, N, n_speech, N_step, F_step, W_layer, A_layer, atoms_layer;
    int64_t residual_first_layer; /* 0: layer 1 leaves -W^T W h out */
    const void *A;                /* (K, N, N) as above, or NULL: the factored form */
    const void *W;                /* (K, F, N) as above, in the Gram form */
    const void *atoms;            /* (K, N, F), -W_k^T, in the factored form; a single panel */
    const void *rate;             /* (K, N), 1 / alpha_k */
    const void *threshold;        /* (K, N) as above */
    const void *reconstruction;   /* (N, F), the mask's dictionary, transposed */
    const void *h0;               /* (N), where every frame starts, or NULL: where the last one ended */
    double level;                 /* to which magnitudes are brought, or 0: they are taken as they come */
    double power, floor;          /* of magnitudes; of the mask's denominator */
    Prior prior;
} Network;

/* Sound on its way through a network. If there are bins from `top` to `top_end`, one more row of the output holds the
 * share that is removed there. */
typedef struct {
    const Network *network;
    int64_t channels, in_step, out_step, waits, top, top_end;
    double strength, most, silence; /* most: of a bin that is removed */
    double loudness, peak;          /* of the running level: see level.py */
    const void *window;  /* (WINDOW) */
    const void *turns;   /* (2, WINDOW), cosines and sines of 2 pi j / WINDOW */
    void *waiting;       /* (channels, WINDOW), of which `waits` samples are filled */
    void *tail;          /* (rows, WINDOW), output to which later frames will add */
    void *h;             /* (N), the state; with a prior h, g and c (N + N + U) */
    const void *in;      /* (channels, in_step), samples to be taken */
    void *out;           /* (rows, out_step), samples that are done */
    void *room;          /* for `room_of` numbers, and for `indices_of` indices, so that nothing is */
    int32_t *active;     /* allocated on the way */
    const uint8_t *kept; /* (N), whether an atom belongs to what is kept, or NULL: the first n_speech do */
    void *seen;          /* (F + N + N), of the last frame its mask, what that is made of, lambda; or NULL */
} Stream;

/* How many numbers a frame needs as room, and how many indices; and a stream of so many channels. */
static int64_t numbers_of(const Network *z) { return 4 * (z->N + z->prior.U) + 1 + z->F + z->F_step; }
static int64_t indices_of(const Network *z) { return z->N + z->F + z->prior.U; }
static int64_t room_of(const Network *z, int64_t channels) { return (2 * channels + 5) * BINS + numbers_of(z); }

#if defined(__GNUC__) && defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define VERSION(name) name##_avx512
#define STRIP 26 /* registers for the sums of one row, of 32 */
#define TILE 6   /* registers for each of 4 rows */
#include "arithmetic.h"
#define TARGET __attribute__((target("avx2,fma")))
#define VERSION(name) name##_avx2
#define STRIP 13
#define TILE 2
#include "arithmetic.h"
#ifdef ONLY_STREAMS
#ifndef DRNMF_INSTRUCTIONS
#define DRNMF_INSTRUCTIONS 2
#endif
enum { allowed = DRNMF_INSTRUCTIONS };
#else
static int allowed = 2; /* how many of the sets beyond the baseline may be used */
#endif
#define HAS(set) __builtin_cpu_supports(set)
#define BEST(name)                                                                     \
    (allowed > 1 && HAS("avx512vl") && HAS("avx512dq") && HAS("fma") ? name##_avx512   \
     : allowed > 0 && HAS("avx2") && HAS("fma")                      ? name##_avx2     \
                                                                     : name##_baseline)
#else
#ifndef ONLY_STREAMS
static int allowed;
#endif
#define BEST(name) name##_baseline
#endif
#define TARGET
#define VERSION(name) name##_baseline
#define STRIP 13
#define TILE 2
#include "arithmetic.h"
