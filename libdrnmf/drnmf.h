/* libdrnmf: noisy speech in, speech out, block by block, in real time.
 *
 *     drnmf *d;
 *     int code = drnmf_open(&d, "default.drnmf", 48000, 1);   // drnmf export --c default -o default.drnmf
 *     if (code) return fprintf(stderr, "%s\n", drnmf_error(code));
 *     while (more) drnmf_process(d, block, block, n);         // any n; the output is drnmf_latency(d) samples late
 *     drnmf_close(d);
 *
 * Samples are float with full scale 1, interleaved where there are several channels, which then share one mask so that
 * voices stay where they are. The network hears 16 kHz. At another rate what lies below 8 kHz is resampled by short
 * filters, and what lies above follows its neighbours.
 *
 * drnmf_process and the functions that set or show something, or go on with another model, do not allocate, lock, or
 * call the system. There are no globals: an instance is used by one thread at a time, different instances by as many as
 * you like.
 */

#ifndef DRNMF_H
#define DRNMF_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DRNMF_API
#define DRNMF_API
#endif

typedef struct drnmf drnmf;

/* What functions return. The text of each is drnmf_error's. */
enum {
    DRNMF_OK = 0,
    DRNMF_NO_MEMORY,
    DRNMF_NO_FILE,      /* the model's file cannot be read */
    DRNMF_NOT_A_MODEL,  /* another kind of file */
    DRNMF_NEWER_MODEL,  /* written for a later version of this library */
    DRNMF_DAMAGED,      /* lengths, sizes or the checksum do not fit, or numbers are not finite */
    DRNMF_NO_MODEL,     /* none is compiled in: give a file */
    DRNMF_BAD_RATE,     /* not from 8000 to 192000 Hz, or no simple ratio to 16000 */
    DRNMF_BAD_CHANNELS, /* not from 1 to 64 */
    DRNMF_BAD_VALUE,    /* a strength, an attenuation, an atom, a pointer, or a model's sizes that cannot be */
    DRNMF_BAD_SAMPLES,  /* NaN, infinite, or beyond 1000: they were taken as 0 */
    DRNMF_DIVERGED,     /* the model's mask was not finite: sound passed unchanged, and the network starts anew */
    DRNMF_CANNOT_LEARN, /* the model's file was written before models could */
    DRNMF_SHORT_NOISE,  /* less than 0.3 s */
    DRNMF_SILENT_NOISE,
    DRNMF_ONLY_SPEECH   /* the sample holds no noise */
};

/* The text of a code, in one line. */
DRNMF_API const char *drnmf_error(int code);

/* Read a model from a file, NULL for the one that is compiled in, and make an instance for a rate and a number of
 * channels. On failure *d is NULL. */
DRNMF_API int drnmf_open(drnmf **d, const char *path, int rate, int channels);

/* The same from memory, aligned to 4 bytes. The model is used where it lies, so that any number of instances share it:
 * it must stay until the last of them is closed. */
DRNMF_API int drnmf_open_memory(drnmf **d, const void *model, size_t bytes, int rate, int channels);

/* The same again, with the model of another instance, which must be closed after this one. Nothing is checked twice. */
DRNMF_API int drnmf_open_like(drnmf **d, const drnmf *other, int rate, int channels);

/* Take n samples of each channel and give as many, which are drnmf_latency(d) late; `in` and `out` may be the same.
 * DRNMF_BAD_SAMPLES and DRNMF_DIVERGED say that something was mended; `out` is filled and finite in any case. */
DRNMF_API int drnmf_process(drnmf *d, const float *in, float *out, size_t n);

/* By how many samples of the instance's rate the output lies behind the input, always. The first ones are silence; at
 * the end, process as many zeros to get the rest. */
DRNMF_API int drnmf_latency(const drnmf *d);

/* Forget all sound: the next sample is the first. Strength, attenuation and atoms stay as they are set. */
DRNMF_API void drnmf_reset(drnmf *d);

DRNMF_API void drnmf_close(drnmf *d); /* NULL is allowed */

/* How much of the noise to remove, from 0 (nothing) to 1 (all that the mask says: so at the start). */
DRNMF_API int drnmf_set_strength(drnmf *d, float strength);

/* By how many dB a part of the spectrum is lowered at most: 0 or more, INFINITY for no limit (so at the start). */
DRNMF_API int drnmf_set_max_attenuation(drnmf *d, float decibels);

/* Looking inside. Spectra have DRNMF_BINS numbers, 31.25 Hz apart; frames are DRNMF_HOP samples apart at 16 kHz. */
enum { DRNMF_BINS = 257, DRNMF_HOP = 128 };

DRNMF_API int drnmf_atoms(const drnmf *d);        /* how many spectra the network explains sound by */
DRNMF_API int drnmf_speech_atoms(const drnmf *d); /* the first so many are speech, the others noise */
DRNMF_API const float *drnmf_spectrum(const drnmf *d, int atom); /* (DRNMF_BINS), of magnitudes to the model's power */
DRNMF_API float drnmf_power(const drnmf *d);

/* Of the last frame that is done, valid until the next call: how many were done since the start; its mask (DRNMF_BINS);
 * how much of each atom is in it, as the mask weighs it; and the threshold under which each atom had to prove itself:
 * low where the network expected it. */
DRNMF_API unsigned long long drnmf_frames(const drnmf *d);
DRNMF_API const float *drnmf_mask(const drnmf *d);
DRNMF_API const float *drnmf_activations(const drnmf *d);
DRNMF_API const float *drnmf_expected(const drnmf *d);

/* Whether an atom is kept (1: at the start, those of speech) or removed (0: those of noise). */
DRNMF_API int drnmf_keep_atom(drnmf *d, int atom, int keep);

/* A model that knows a noise, from n samples of it in which nobody speaks, as drnmf_process takes them: at least 0.3 s,
 * better 3 s; of more than a minute the first is used. It is written to `model`, drnmf_model_bytes(d) long and aligned
 * to 4 bytes, for drnmf_open_memory. The instance stays as it is, and may process in another thread meanwhile: learning
 * takes a tenth of the time that the sample does. */
DRNMF_API int drnmf_learn(const drnmf *d, const float *samples, size_t n, void *model);
DRNMF_API size_t drnmf_model_bytes(const drnmf *d);

/* From the next frame on, use the model of another instance, which must be closed after this one: one that has learned,
 * or the first again. The sound goes on without a gap. There must be as many atoms; those that are kept stay so. */
DRNMF_API int drnmf_go_on_with(drnmf *d, const drnmf *other);

#ifdef __cplusplus
}
#endif
#endif
