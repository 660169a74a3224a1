/* Resampling between any rate and 16 kHz by the filters of `signal/short_filters.py`; a part of `drnmf.c`.
 *
 *     g = a low pass below the lower of the two Nyquist frequencies, symmetric, windowed (Kaiser), on the grid that holds
 *         the samples of both rates
 *     y[n] = step sum_k g(n advance - k step) x[k],     step, advance: from a sample to the next, on that grid
 *
 * The sum is over taps that lie together in memory, one row of them for each phase.
 */

#define HALF 80          /* samples at the lower rate on each side: 5 ms at 16 kHz */
#define BETA 9.0         /* of the window: 90 dB below, from Nyquist on; flat to 92 % of it */
#define EDGE 0.96        /* the middle of its slope, in parts of the lower Nyquist frequency */
#define MOST_PHASES 2000 /* more would be a rate that nobody uses, and much memory */

typedef struct {
    int64_t step, advance, half; /* on the grid; half: of g */
    int64_t reach, taps;         /* in samples: before the one at or before y[n]; in all, a multiple of 8 */
    float *g;                    /* (step, taps) */
} Filter;

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

static double bessel(double x) {
    const double quarter = x * x / 4;
    double term = 1, sum = 1;
    for (int k = 1; term > 1e-17 * sum; k++) term *= quarter / ((double)k * k), sum += term;
    return sum;
}

/* From `source` to `target` Hz. */
static Filter filter_of(int64_t source, int64_t target) {
    const int64_t divisor = common_divisor(source, target), step = target / divisor, advance = source / divisor;
    const int64_t half = HALF * (step > advance ? step : advance), reach = half / step;
    return (Filter){.step = step, .advance = advance, .half = half, .reach = reach, .taps = (2 * reach + 2 + 7) / 8 * 8};
}

static int64_t size_of_filter(const Filter *f) { return f->step * f->taps; }

/* g at its middle and on one side (half + 1), with a sum of 1 over both. */
static void low_pass(double *g, int64_t half) {
    const double edge = EDGE * HALF / half, pi = 3.14159265358979323846, middle = bessel(BETA);
    double sum = 0;
    for (int64_t n = 0; n <= half; n++) {
        const double x = pi * edge * n, at = (double)n / half;
        g[n] = edge * (n ? sin(x) / x : 1) * bessel(BETA * sqrt(1 - at * at)) / middle;
        sum += n ? 2 * g[n] : g[n];
    }
    for (int64_t n = 0; n <= half; n++) g[n] /= sum;
}

static void fill_filter(const Filter *f, const double *g) {
    for (int64_t phase = 0; phase < f->step; phase++)
        for (int64_t i = 0; i < f->taps; i++) {
            const int64_t place = llabs(phase + (f->reach - i) * f->step);
            f->g[phase * f->taps + i] = place <= f->half ? (float)(f->step * (float)g[place]) : 0;
        }
}

/* The last x that y[n] needs. */
static int64_t last_needed(const Filter *f, int64_t n) { return (n * f->advance + f->half) / f->step; }

/* Samples that wait: (rows, room), of which those from `first` to `end` are there. */
typedef struct {
    int64_t rows, room, first, end;
    float *samples;
} Line;

static float *line_at(const Line *z, int64_t row, int64_t n) { return z->samples + row * z->room + (n - z->first); }

/* Make place for n more. Those before `oldest` are dropped, but only when there is no other place: moving takes time. */
static void make_place(Line *z, int64_t n, int64_t oldest) {
    const int64_t drop = oldest - z->first;
    if (z->end + n - z->first <= z->room - 8 || drop <= 0) return; /* 8: taps are read by registers */
    for (int64_t r = 0; r < z->rows; r++) {
        float *row = z->samples + r * z->room;
        memmove(row, row + drop, (z->end - oldest) * sizeof *row);
    }
    z->first = oldest;
}

static float dot(const float *a, const float *b, int64_t n) {
    float sum[8] = {0};
    for (int64_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += a[i + j] * b[i + j];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* y[n] of a line's row. */
static float filtered(const Filter *f, const Line *x, int64_t row, int64_t n) {
    const int64_t at = n * f->advance, q = at / f->step;
    return dot(line_at(x, row, q - f->reach), f->g + at % f->step * f->taps, f->taps);
}
