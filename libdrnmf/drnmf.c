/* The library of `drnmf.h`: the engine that the Python package compiles (`src/drnmf/engines/csrc`), and around it what
 * `use/streaming.py` does: sound of any rate in blocks of any size, from which the part to remove is subtracted.
 *
 *     low = x brought to 16 kHz and back,        removed = what the mask removes from low + s (x - low),
 *
 * where s is the share that the mask removes near the top of its band. It falls at once and rises slowly.
 */

#if defined(_WIN32) && !defined(DRNMF_API)
#define DRNMF_API __declspec(dllexport)
#elif defined(__GNUC__) && !defined(DRNMF_API)
#define DRNMF_API __attribute__((visibility("default")))
#endif

#define ONLY_STREAMS /* of the engine */
#include "../src/drnmf/engines/csrc/engine.h"

#include <float.h>
#include <stdio.h>

#include "drnmf.h"
#include "model.h"
#include "rates.h"

#define OWN_RATE 16000
#define CHUNK 256      /* samples that are taken at a time, at the instance's rate */
#define CHUNK_16 1024  /* more than CHUNK becomes at 16 kHz */
#define PEAK 1000.0f   /* louder than any sound whose full scale is 1 */
#define QUIET_TOP 1e-5 /* sum of magnitudes near the top below which there is nothing to weigh the mask by */
#define TOP_FROM 0.75  /* of the band: 6 to 7.5 kHz at 16 kHz, above which resampling filters set in */
#define TOP_TO 0.9375
#define MOST_CHANNELS 64
#define MOST_BYTES (1 << 28) /* of a model's file */

struct drnmf {
    Model model;
    Stream stream;
    Filter down, up; /* to 16 kHz, and back */
    Line x;          /* (channels) as they came */
    Line x16;        /* (channels) the same at 16 kHz, for other rates */
    Line removed;    /* (channels, then s) at 16 kHz */
    uint8_t *kept;
    void *content; /* of the model's file that this instance has read, if it has */
    int rate, channels, latency;
    uint64_t frames;
    double slow, last; /* s: what it would be if it rose slowly, and its last value */
    float share;       /* s at the start, without which it is resampled, as if it started from 0 */
};

const char *drnmf_error(int code) {
    switch (code) {
        case DRNMF_OK: return "no error";
        case DRNMF_NO_MEMORY: return "there is not enough memory";
        case DRNMF_NO_FILE: return "the model's file cannot be read";
        case DRNMF_NOT_A_MODEL: return "not a model for libdrnmf: make one by drnmf export --c MODEL -o FILE";
        case DRNMF_NEWER_MODEL: return "the model was written for a newer libdrnmf: upgrade it";
        case DRNMF_DAMAGED: return "the model's file is damaged: export or copy it again";
        case DRNMF_NO_MODEL: return "no model is compiled in: give the name of a file";
        case DRNMF_BAD_RATE: return "the sample rate must be from 8000 to 192000 Hz, in a simple ratio to 16000";
        case DRNMF_BAD_CHANNELS: return "there must be from 1 to 64 channels";
        case DRNMF_BAD_VALUE: return "strength is from 0 to 1, attenuation 0 dB or more, an atom and sizes the model's";
        case DRNMF_BAD_SAMPLES: return "samples were not finite or beyond 1000, and taken as 0: full scale is 1";
        case DRNMF_DIVERGED: return "the model's mask was not finite: sound passed unchanged";
        case DRNMF_CANNOT_LEARN: return "this model's file is too old to learn a noise: export it again";
        case DRNMF_SHORT_NOISE: return "a sample of noise must last at least 0.3 s";
        case DRNMF_SILENT_NOISE: return "this sample of noise is silent: there is nothing to learn from it";
        case DRNMF_ONLY_SPEECH: return "this is nothing but speech to the model: give a sample in which nobody speaks";
        default: return "no such code";
    }
}

/* The next n numbers of an instance's memory; without a base they are only counted. */
static float *part(float *base, size_t *used, int64_t n) {
    float *at = base ? base + *used : NULL;
    *used += n;
    return at;
}

/* Where everything lies in memory from `base` on; how many numbers that are. */
static size_t lay_out(drnmf *d, float *base) {
    const int64_t C = d->channels, rows = C + 1, N = d->model.network.N;
    const int64_t span_16 = 2 * d->up.reach + 2 * WINDOW + 2 * CHUNK_16;
    size_t used = 0;
    Stream *z = &d->stream;
    z->window = part(base, &used, WINDOW);
    z->turns = part(base, &used, 2 * WINDOW);
    z->waiting = part(base, &used, C * WINDOW);
    z->tail = part(base, &used, rows * WINDOW);
    z->h = part(base, &used, 2 * N + d->model.network.prior.U);
    z->in = part(base, &used, C * CHUNK_16);
    z->out = part(base, &used, rows * (CHUNK_16 + HOP));
    z->room = part(base, &used, room_of(&d->model.network, C));
    z->active = (int32_t *)part(base, &used, indices_of(&d->model.network));
    z->seen = part(base, &used, BINS + 2 * N);
    z->kept = d->kept = (uint8_t *)part(base, &used, (N + 3) / 4);
    d->x = (Line){.rows = C, .room = 2 * (d->latency + d->down.taps + CHUNK)};
    d->x16 = (Line){.rows = C, .room = 2 * span_16};
    d->removed = (Line){.rows = rows, .room = 2 * span_16};
    d->x.samples = part(base, &used, d->x.rows * d->x.room);
    d->x16.samples = part(base, &used, d->x16.rows * d->x16.room);
    d->removed.samples = part(base, &used, d->removed.rows * d->removed.room);
    d->down.g = part(base, &used, size_of_filter(&d->down));
    d->up.g = part(base, &used, size_of_filter(&d->up));
    return used;
}

static void fill_tables(drnmf *d, float *window, float *turns) {
    for (int i = 0; i < WINDOW; i++) {
        const double angle = 2 * 3.14159265358979323846 * i / WINDOW;
        turns[i] = (float)cos(angle), turns[WINDOW + i] = (float)sin(angle);
        window[i] = (float)sqrt(0.5 - 0.5 * cos(angle));
    }
    for (int64_t i = 0; i < d->model.network.N; i++) d->kept[i] = i < d->model.network.n_speech;
}

static int fill_filters(drnmf *d) {
    double *g = malloc((d->down.half + 1) * sizeof *g); /* the same for both: they meet on one grid */
    if (!g) return DRNMF_NO_MEMORY;
    low_pass(g, d->down.half);
    fill_filter(&d->down, g);
    fill_filter(&d->up, g);
    free(g);
    return DRNMF_OK;
}

static void set_stream(drnmf *d) {
    const double highest = d->rate < OWN_RATE ? (double)d->rate / OWN_RATE : 1;
    Stream *z = &d->stream;
    z->network = &d->model.network;
    z->channels = d->channels, z->in_step = CHUNK_16, z->out_step = CHUNK_16 + HOP;
    z->strength = z->most = 1, z->silence = QUIET_TOP;
    if (d->rate == OWN_RATE) return;
    z->top = lrint(POINTS * TOP_FROM * highest);
    z->top_end = lrint(POINTS * TOP_TO * highest);
}

static int open_model(drnmf **result, const Model *model, int rate, int channels) {
    if (rate < 8000 || rate > 192000) return DRNMF_BAD_RATE;
    if (channels < 1 || channels > MOST_CHANNELS) return DRNMF_BAD_CHANNELS;
    drnmf sizes = {.model = *model, .rate = rate, .channels = channels};
    sizes.down = filter_of(rate, OWN_RATE), sizes.up = filter_of(OWN_RATE, rate);
    if (sizes.down.step > MOST_PHASES || sizes.up.step > MOST_PHASES) return DRNMF_BAD_RATE;
    const int64_t filters = rate == OWN_RATE ? 0 : 2 * sizes.down.half;
    sizes.latency = (int)(((WINDOW - 1) * sizes.down.advance + filters) / sizes.down.step);
    const size_t numbers = lay_out(&sizes, NULL), head = (sizeof sizes + 63) / 64 * 64;
    drnmf *d = calloc(1, head + numbers * sizeof(float));
    if (!d) return DRNMF_NO_MEMORY;
    *d = sizes;
    lay_out(d, (float *)((char *)d + head));
    fill_tables(d, (float *)d->stream.window, (float *)d->stream.turns);
    set_stream(d);
    if (fill_filters(d)) {
        free(d);
        return DRNMF_NO_MEMORY;
    }
    drnmf_reset(d);
    *result = d;
    return DRNMF_OK;
}

int drnmf_open_memory(drnmf **d, const void *content, size_t bytes, int rate, int channels) {
    Model model;
    if (!d) return DRNMF_BAD_VALUE;
    *d = NULL;
    if (!content) return DRNMF_BAD_VALUE;
    const int code = read_model(content, bytes, &model);
    return code ? code : open_model(d, &model, rate, channels);
}

int drnmf_open_like(drnmf **d, const drnmf *other, int rate, int channels) {
    if (!d) return DRNMF_BAD_VALUE;
    *d = NULL;
    return other ? open_model(d, &other->model, rate, channels) : DRNMF_BAD_VALUE;
}

#ifdef DRNMF_BUNDLED /* a model is compiled in, by `bundled.c` */
extern const char drnmf_bundled[], drnmf_bundled_end[];

static int open_bundled(drnmf **d, int rate, int channels) {
    return drnmf_open_memory(d, drnmf_bundled, drnmf_bundled_end - drnmf_bundled, rate, channels);
}
#else
static int open_bundled(drnmf **d, int rate, int channels) {
    (void)rate, (void)channels;
    *d = NULL;
    return DRNMF_NO_MODEL;
}
#endif

#ifdef DRNMF_NO_FILES
static int read_file(const char *path, void **content, size_t *bytes) {
    (void)path, (void)content, (void)bytes;
    return DRNMF_NO_FILE;
}
#else
/* A file's content: in steps, since pipes do not know their length. */
static int read_file(const char *path, void **content, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16, got = 0;
    char *all = NULL, *more;
    int code = file ? DRNMF_OK : DRNMF_NO_FILE;
    while (!code) {
        if (!(more = realloc(all, room))) {
            code = DRNMF_NO_MEMORY;
            break;
        }
        all = more;
        got += fread(all + got, 1, room - got, file);
        if (ferror(file)) code = DRNMF_NO_FILE; /* a folder, for instance */
        if (got < room) break;
        if (room >= MOST_BYTES) code = DRNMF_NOT_A_MODEL;
        room *= 2;
    }
    if (file) fclose(file);
    if (code) free(all), all = NULL;
    *content = all, *bytes = got;
    return code;
}
#endif

int drnmf_open(drnmf **d, const char *path, int rate, int channels) {
    void *content;
    size_t bytes;
    if (!d) return DRNMF_BAD_VALUE;
    *d = NULL;
    if (!path) return open_bundled(d, rate, channels);
    int code = read_file(path, &content, &bytes);
    if (code) return code;
    code = drnmf_open_memory(d, content, bytes, rate, channels);
    if (code)
        free(content);
    else
        (*d)->content = content;
    return code;
}

void drnmf_close(drnmf *d) {
    if (!d) return;
    free(d->content);
    free(d);
}

/* Empty but for silence: what lies before the first sample. */
static void clear(Line *z, int64_t before) {
    memset(z->samples, 0, z->rows * z->room * sizeof *z->samples);
    z->first = -before, z->end = 0;
}

/* As after silence; the samples that wait for their frame stay. */
static void restart_network(drnmf *d) {
    Stream *z = &d->stream;
    memset(z->tail, 0, (d->channels + 1) * WINDOW * sizeof(float));
    memcpy(z->h, d->model.silent, (2 * d->model.network.N + d->model.network.prior.U) * sizeof(float));
    z->loudness = z->peak = 0;
}

void drnmf_reset(drnmf *d) {
    restart_network(d);
    memset(d->stream.waiting, 0, d->channels * WINDOW * sizeof(float));
    memset(d->stream.seen, 0, (BINS + 2 * d->model.network.N) * sizeof(float));
    d->stream.waits = WINDOW - HOP;
    d->frames = 0;
    d->slow = INFINITY, d->last = 0, d->share = 0;
    clear(&d->x, d->down.reach);
    clear(&d->x16, d->up.reach);
    clear(&d->removed, d->up.reach);
}

/* Take n samples; whether all of them can be. */
static int put(drnmf *d, const float *in, int64_t n) {
    const int C = d->channels;
    int good = 1;
    make_place(&d->x, n, d->x.end - d->latency - d->down.taps);
    for (int c = 0; c < C; c++) {
        float *row = line_at(&d->x, c, d->x.end);
        for (int64_t i = 0; i < n; i++) {
            const float x = in[i * C + c];
            const int fits = fabsf(x) <= PEAK; /* NaN does not */
            row[i] = fits ? x : 0;
            good &= fits;
        }
    }
    d->x.end += n;
    return good;
}

/* What the last n samples complete at 16 kHz goes to the network: how many samples. */
static int to_network(drnmf *d, int64_t n) {
    float *in = (float *)d->stream.in;
    if (d->rate == OWN_RATE) {
        for (int c = 0; c < d->channels; c++)
            memcpy(in + c * CHUNK_16, line_at(&d->x, c, d->x.end - n), n * sizeof *in);
        return (int)n;
    }
    int count = 0;
    while (last_needed(&d->down, d->x16.end + count) < d->x.end) count++;
    /* the oldest that is still used: what comes out next lies `latency` behind, and its filter reaches back */
    const int64_t oldest = (d->x.end - n - d->latency) * d->up.advance / d->up.step - d->up.reach - 1;
    make_place(&d->x16, count, oldest);
    for (int c = 0; c < d->channels; c++) {
        for (int i = 0; i < count; i++) in[c * CHUNK_16 + i] = filtered(&d->down, &d->x, c, d->x16.end + i);
        memcpy(line_at(&d->x16, c, d->x16.end), in + c * CHUNK_16, count * sizeof *in);
    }
    d->x16.end += count;
    return count;
}

/* s over one hop: falling at once, rising slowly, straight in between; less its first value. */
static void close_slowly(drnmf *d, const float *share, float *out) {
    const double closing = 1 - exp(-(double)HOP / OWN_RATE / 0.25); /* in a quarter of a second most of the way */
    double goal = share[HOP - 1];
    const int first = isinf(d->slow);
    if (first) d->slow = d->last = share[0];
    if (goal != 0) { /* 0 is silence: nothing to close for, and what was known of the noise still holds */
        const double risen = d->slow + closing * (goal - d->slow);
        goal = d->slow = goal < risen ? goal : risen;
    }
    for (int i = 0; i < HOP; i++) out[i] = (float)(d->last + (goal - d->last) * (i + 1) / HOP);
    d->last = goal;
    if (first) d->share = out[0];
    for (int i = 0; i < HOP; i++) out[i] -= d->share;
}

/* Keep what the network says of a hop; whether it is finite. */
static int keep_hop(drnmf *d, const float *hop) {
    const int64_t rows = d->channels + (d->rate != OWN_RATE), step = d->stream.out_step;
    static const float nothing[HOP] = {0};
    const int before = d->frames++ < (WINDOW - HOP) / HOP; /* the sound */
    int good = 1;
    for (int64_t r = 0; r < rows; r++) good &= are_finite(hop + r * step, HOP);
    for (int64_t r = 0; r < rows && !before; r++) {
        const float *row = good ? hop + r * step : nothing;
        float *to = line_at(&d->removed, r, d->removed.end);
        if (r == d->channels)
            close_slowly(d, row, to);
        else
            memcpy(to, row, HOP * sizeof *to);
    }
    d->removed.end += before ? 0 : HOP;
    return good;
}

/* The network's answer to n samples at 16 kHz; whether it is finite. */
static int remove_from(drnmf *d, int n) {
    int good = 1;
    const int hops = BEST(feed_f32)(&d->stream, n);
    const int64_t given = d->x.end - d->latency - CHUNK; /* before this, all has come out */
    make_place(&d->removed, hops * HOP, given * d->up.advance / d->up.step - d->up.reach - 1);
    for (int i = 0; i < hops; i++) good &= keep_hop(d, (const float *)d->stream.out + i * HOP);
    if (!good) restart_network(d);
    return good;
}

static float removed_at(const drnmf *d, int channel, int64_t n, float share, float x) {
    if (d->rate == OWN_RATE) return *line_at(&d->removed, channel, n);
    const float removed = filtered(&d->up, &d->removed, channel, n), low = filtered(&d->up, &d->x16, channel, n);
    return removed + share * (x - low);
}

static void give(drnmf *d, float *out, int64_t n) {
    const int C = d->channels;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = d->x.end - n + i - d->latency;
        const int other = at >= 0 && d->rate != OWN_RATE;
        const float share = other ? filtered(&d->up, &d->removed, C, at) + d->share : 0;
        for (int c = 0; c < C; c++) {
            const float x = at < 0 ? 0 : *line_at(&d->x, c, at);
            out[i * C + c] = at < 0 ? 0 : x - removed_at(d, c, at, share, x);
        }
    }
}

int drnmf_process(drnmf *d, const float *in, float *out, size_t n) {
    int code = DRNMF_OK;
    if (!d || (n && (!in || !out))) return DRNMF_BAD_VALUE;
    for (int64_t some; n > 0; n -= some, in += some * d->channels, out += some * d->channels) {
        some = n < CHUNK ? (int64_t)n : CHUNK;
        if (!put(d, in, some)) code = DRNMF_BAD_SAMPLES;
        if (!remove_from(d, to_network(d, some))) code = DRNMF_DIVERGED;
        give(d, out, some);
    }
    return code;
}

int drnmf_latency(const drnmf *d) { return d->latency; }

int drnmf_set_strength(drnmf *d, float strength) {
    if (!d || !(strength >= 0 && strength <= 1)) return DRNMF_BAD_VALUE;
    d->stream.strength = strength;
    return DRNMF_OK;
}

int drnmf_set_max_attenuation(drnmf *d, float decibels) {
    if (!d || !(decibels >= 0)) return DRNMF_BAD_VALUE;
    d->stream.most = 1 - pow(10, -(double)decibels / 20);
    return DRNMF_OK;
}

int drnmf_atoms(const drnmf *d) { return (int)d->model.network.N; }
int drnmf_speech_atoms(const drnmf *d) { return (int)d->model.network.n_speech; }
float drnmf_power(const drnmf *d) { return (float)d->model.network.power; }
unsigned long long drnmf_frames(const drnmf *d) { return d->frames; }
const float *drnmf_mask(const drnmf *d) { return d->stream.seen; }
const float *drnmf_activations(const drnmf *d) { return (const float *)d->stream.seen + BINS; }
const float *drnmf_expected(const drnmf *d) { return (const float *)d->stream.seen + BINS + d->model.network.N; }

const float *drnmf_spectrum(const drnmf *d, int atom) {
    if (atom < 0 || atom >= d->model.network.N) return NULL;
    return (const float *)d->model.network.reconstruction + atom * d->model.network.F_step;
}

int drnmf_keep_atom(drnmf *d, int atom, int keep) {
    if (!d || atom < 0 || atom >= d->model.network.N) return DRNMF_BAD_VALUE;
    d->kept[atom] = keep != 0;
    return DRNMF_OK;
}

#include "learn.h"
