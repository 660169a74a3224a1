/* Frame by frame, and sound to sound; a part of `arithmetic.h`. */

/* a[j] -= rate[j] (the j-th row of A, times e) for 1 or 8 rows of a single panel; e ends with zeros as they do. Without
 * rates a becomes the products themselves. */
INLINE void NAME(dots)(const int rows, real *a, const real *rate, const real *A, int64_t A_step, const real *e) {
    vector sum[8] = {{0}};
    for (int64_t i = 0; i < A_step; i += LANES) {
        const vector part = *(const vector *)(e + i);
        UNROLL for (int r = 0; r < rows; r++) sum[r] += *(const vector *)(A + r * A_step + i) * part;
    }
    UNROLL for (int r = 0; r < rows; r++) {
        real lane[sizeof(vector) / sizeof(real)];
        memcpy(lane, &sum[r], sizeof lane);
        for (int64_t half = LANES / 2; half > 0; half /= 2)
            for (int64_t i = 0; i < half; i++) lane[i] += lane[i + half];
        a[r] = rate ? a[r] - rate[r] * lane[0] : lane[0];
    }
}

#include "prior.h"

/* What the mask is made of for one frame x (F): h, which is also the state. `room` is for N + F + F_step numbers, `active` for N + F.
 *
 *     Gram        a = h A_k + (x W_k - lambda_k) / alpha_k              only rows of active atoms are read of A_k
 *     factored    a = h - lambda_k / alpha_k + (x - h W_k^T) W_k / alpha_k    both times by rows of W_k^T
 */
static TARGET const real *NAME(frame)(const Network *z, const real *x, real *h, real *room, int32_t *active) {
    const int64_t N = z->N, F = z->F;
    if (z->prior.U) return NAME(expecting)(z, x, h, room, active);
    real *a = room, *e = room + N;
    int32_t *bins = active + N;
    const int64_t n_bins = NAME(nonzero)(x, F, bins);
    if (z->h0) memcpy(h, z->h0, N * sizeof(real));
    memset(e, 0, (F + z->F_step) * sizeof(real));
    for (int64_t k = 0; k < z->K; k++) {
        const real *threshold = (const real *)z->threshold + k * N, *rate = (const real *)z->rate + k * N;
        const int64_t n_active = NAME(nonzero)(h, N, active);
        for (int64_t i = 0; i < N; i++) a[i] = (z->A ? 0 : h[i]) - threshold[i];
        if (z->A) {
            const real *A = (const real *)z->A + k * z->A_layer, *W = (const real *)z->W + k * z->W_layer;
            NAME(add_active)(a, N, h, active, n_active, A, z->N_step, N);
            NAME(add_active)(a, N, x, bins, n_bins, W, z->N_step, F);
        } else {
            const real *atoms = (const real *)z->atoms + k * z->atoms_layer;
            memcpy(e, x, F * sizeof(real));
            if (k || z->residual_first_layer) NAME(add_active)(e, F, h, active, n_active, atoms, z->F_step, N);
            int64_t j = 0;
            for (; j + 8 <= N; j += 8) NAME(dots)(8, a + j, rate + j, atoms + j * z->F_step, z->F_step, e);
            for (; j < N; j++) NAME(dots)(1, a + j, rate + j, atoms + j * z->F_step, z->F_step, e);
        }
        for (int64_t i = 0; i < N; i++) h[i] = a[i] <= 0 ? 0 : a[i];
    }
    return h;
}

#ifndef ONLY_STREAMS
/* What the mask is made of for T frames x (T, F), from a state, which becomes that of the last frame: (T, N), with a
 * prior (T, N + 1). */
static TARGET int NAME(activations)(const Network *z, const real *x, int64_t T, real *state, real *h) {
    real *a = malloc(numbers_of(z) * sizeof(real));
    int32_t *active = malloc(indices_of(z) * sizeof *active);
    const int done = a && active;
    const int64_t parts = z->N + (z->prior.U > 0);
    for (int64_t t = 0; done && t < T; t++)
        memcpy(h + t * parts, NAME(frame)(z, x + t * z->F, state, a, active), parts * sizeof(real));
    free(a), free(active);
    return done;
}
#endif

/* Where h is not zero and `kept` is as wanted, and in how many places. */
static TARGET int64_t NAME(chosen)(const real *h, int64_t N, const uint8_t *kept, int wanted, int32_t *active) {
    int64_t count = 0;
    for (int64_t i = 0; i < N; i++) {
        active[count] = (int32_t)i;
        count += h[i] != 0 && (kept[i] != 0) == wanted;
    }
    return count;
}

/* The ratio mask (F) of activations h: speech / max(speech + noise, floor), with a prior times its gain; `noise` is room
 * for F numbers. With `kept`, atoms that it names are speech and all others noise. */
static TARGET void NAME(mask)(const Network *z, const real *h, const uint8_t *kept, real *mask, real *noise,
                              int32_t *active) {
    const int64_t split = kept ? 0 : z->n_speech;
    const real *D = z->reconstruction, floor = (real)z->floor, gain = z->prior.U ? h[z->N] : 1;
    memset(mask, 0, z->F * sizeof(real)), memset(noise, 0, z->F * sizeof(real));
    int64_t count = kept ? NAME(chosen)(h, z->N, kept, 1, active) : NAME(nonzero)(h, split, active);
    NAME(add_active)(mask, z->F, h, active, count, D, z->F_step, z->N);
    count = kept ? NAME(chosen)(h, z->N, kept, 0, active) : NAME(nonzero)(h + split, z->N - split, active);
    NAME(add_active)(noise, z->F, h + split, active, count, D + split * z->F_step, z->F_step, z->N);
    for (int64_t i = 0; i < z->F; i++) {
        const real sum = mask[i] + noise[i];
        mask[i] = gain * mask[i] / (sum < floor ? floor : sum);
    }
}

/* Fourier transform of POINTS complex numbers, in place, by four passes of radix 4 (Stockham). */
static TARGET void NAME(fourier)(real *re, real *im, const real *turns) {
    real other_re[POINTS], other_im[POINTS], *in_re = re, *in_im = im, *out_re = other_re, *out_im = other_im;
    for (int s = 1, m = POINTS / 4; m > 0; s *= 4, m /= 4) {
        for (int p = 0; p < m; p++) {
            const real *cosine = turns + 2 * s * p, *sine = turns + WINDOW + 2 * s * p; /* of a turn by p / 4m */
            const real c1 = cosine[0], s1 = sine[0], c2 = cosine[2 * s * p], s2 = sine[2 * s * p];
            const real c3 = cosine[4 * s * p], s3 = sine[4 * s * p];
            const real *a = in_re + s * p, *b = a + s * m, *c = b + s * m, *d = c + s * m;
            const real *ai = in_im + s * p, *bi = ai + s * m, *ci = bi + s * m, *di = ci + s * m;
            real *restrict y = out_re + 4 * s * p, *restrict yi = out_im + 4 * s * p;
            for (int q = 0; q < s; q++) {
                const real u = a[q] + c[q], ui = ai[q] + ci[q], v = a[q] - c[q], vi = ai[q] - ci[q];
                const real w = b[q] + d[q], wi = bi[q] + di[q], z = di[q] - bi[q], zi = b[q] - d[q]; /* z: times i */
                const real f = v - z, fi = vi - zi, g = u - w, gi = ui - wi, h = v + z, hi = vi + zi;
                y[q] = u + w, yi[q] = ui + wi;
                y[q + s] = c1 * f + s1 * fi, yi[q + s] = c1 * fi - s1 * f;
                y[q + 2 * s] = c2 * g + s2 * gi, yi[q + 2 * s] = c2 * gi - s2 * g;
                y[q + 3 * s] = c3 * h + s3 * hi, yi[q + 3 * s] = c3 * hi - s3 * h;
            }
        }
        real *swap = in_re;
        in_re = out_re, out_re = swap, swap = in_im, in_im = out_im, out_im = swap;
    }
}

/* The spectrum X (BINS) of WINDOW samples: even and odd ones as real and imaginary parts, taken apart afterwards. */
static TARGET void NAME(analyse)(const real *x, const real *window, const real *turns, real *X, real *Xi) {
    const real *cosine = turns, *sine = turns + WINDOW;
    real re[BINS], im[BINS];
    for (int i = 0; i < POINTS; i++) re[i] = x[2 * i] * window[2 * i], im[i] = x[2 * i + 1] * window[2 * i + 1];
    NAME(fourier)(re, im, turns);
    re[POINTS] = re[0], im[POINTS] = im[0];
    for (int k = 0; k < BINS; k++) {
        const int l = POINTS - k;
        const real even = re[k] + re[l], even_i = im[k] - im[l], odd = im[k] + im[l], odd_i = re[l] - re[k];
        X[k] = (even + cosine[k] * odd + sine[k] * odd_i) / 2;
        Xi[k] = (even_i + cosine[k] * odd_i - sine[k] * odd) / 2;
    }
}

/* out += half of the windowed samples whose spectrum is X (BINS), as overlap-adding wants it. */
static TARGET void NAME(synthesise)(const real *X, const real *Xi, const real *window, const real *turns, real *out) {
    const real *cosine = turns, *sine = turns + WINDOW;
    real re[POINTS], im[POINTS];
    for (int k = 0; k < POINTS; k++) {
        const int l = POINTS - k;
        const real d = X[k] - X[l], d_i = Xi[k] + Xi[l], odd = cosine[k] * d - sine[k] * d_i;
        re[k] = X[k] + X[l] - (cosine[k] * d_i + sine[k] * d);
        im[k] = Xi[k] - Xi[l] + odd;
    }
    NAME(fourier)(im, re, turns); /* real and imaginary part exchanged, before and after: the inverse */
    for (int i = 0; i < POINTS; i++) {
        out[2 * i] += re[i] * window[2 * i] / (4 * POINTS);
        out[2 * i + 1] += im[i] * window[2 * i + 1] / (4 * POINTS);
    }
}

/* What brings a frame to the network's level; `level.py` has the formula. */
static TARGET real NAME(gain)(Stream *z, const real *magnitude) {
    double power = 0;
    for (int i = 0; i < BINS; i++) power += magnitude[i] * magnitude[i];
    z->loudness += ATTACK * (power / BINS - z->loudness);
    z->peak = z->loudness > RELEASE * z->peak ? z->loudness : RELEASE * z->peak;
    const double level = sqrt(z->peak);
    return (real)(z->network->level / (level > SILENCE ? level : SILENCE));
}

/* What can be seen of a frame: its mask, what that is made of, and lambda of the last layer. `a` is what `frame` left
 * in its room: with a prior, the factors of lambda come third. */
static TARGET void NAME(show)(const Network *z, const real *mask, const real *h, const real *a, real *seen) {
    const int64_t N = z->N, last = z->prior.U ? z->prior.listening + z->K - 1 : z->K - 1;
    const real *rate = (const real *)z->rate + last * N;
    const real *lambda = (const real *)(z->prior.U ? z->prior.sparsity : z->threshold) + last * N;
    memcpy(seen, mask, z->F * sizeof(real));
    memcpy(seen + z->F, h, N * sizeof(real));
    for (int64_t i = 0; i < N; i++) seen[z->F + N + i] = z->prior.U ? a[2 * N + i] * lambda[i] : lambda[i] / rate[i];
}

/* One frame of all channels: what is removed from each is added to its row of `tail`. */
static TARGET void NAME(remove)(Stream *z) {
    const Network *network = z->network;
    const int64_t C = z->channels;
    real *room = z->room, *a = room + (2 * C + 5) * BINS;
    int32_t *active = z->active;
    const real *waiting = z->waiting, *window = z->window, power = (real)network->power;
    const real strength = (real)z->strength, most = (real)z->most;
    real *X = room, *magnitude = X + 2 * C * BINS, *x = magnitude + BINS, *share = x + BINS, *noise = share + BINS;
    real *tail = z->tail;
    memset(magnitude, 0, BINS * sizeof(real));
    for (int64_t c = 0; c < C; c++) {
        real *re = X + 2 * c * BINS, *im = re + BINS;
        NAME(analyse)(waiting + c * WINDOW, window, z->turns, re, im);
        for (int i = 0; i < BINS; i++) magnitude[i] += re[i] * re[i] + im[i] * im[i];
    }
    for (int i = 0; i < BINS; i++) magnitude[i] = sqrt(magnitude[i] / C);
    const real gain = network->level > 0 ? NAME(gain)(z, magnitude) : 1;
    if (power == 1)
        for (int i = 0; i < BINS; i++) x[i] = gain * magnitude[i];
    else if (power == (real)0.5)
        for (int i = 0; i < BINS; i++) x[i] = sqrt(gain * magnitude[i]);
    else
        for (int i = 0; i < BINS; i++) x[i] = pow(gain * magnitude[i], power);
    const real *h = NAME(frame)(network, x, z->h, a, active);
    NAME(mask)(network, h, z->kept, share, noise, active);
    if (z->seen) NAME(show)(network, share, h, a, z->seen);
    for (int i = 0; i < BINS; i++) {
        const real wanted = strength * (1 - share[i]);
        share[i] = wanted > most ? most : wanted; /* NaN stays: it is an error */
    }
    for (int64_t c = 0; c < C; c++) {
        real *re = X + 2 * c * BINS, *im = re + BINS;
        for (int i = 0; i < BINS; i++) re[i] *= share[i], im[i] *= share[i];
        NAME(synthesise)(re, im, window, z->turns, tail + c * WINDOW);
    }
    if (z->top < z->top_end) {
        real removed = 0, all = 0;
        for (int64_t i = z->top; i < z->top_end; i++) removed += share[i] * magnitude[i], all += magnitude[i];
        removed /= all < (real)z->silence ? (real)z->silence : all;
        for (int i = 0; i < WINDOW; i++) tail[C * WINDOW + i] += removed * window[i] * window[i] / 2;
    }
}

/* Take n samples of every channel; return the number of hops that are done. */
static TARGET int NAME(feed)(Stream *z, int n) {
    const int64_t C = z->channels, rows = C + (z->top < z->top_end);
    const real *in = z->in;
    real *waiting = z->waiting, *tail = z->tail, *out = z->out;
    int hops = 0;
    for (int64_t done = 0, take; done < n; done += take) {
        take = n - done < WINDOW - z->waits ? n - done : WINDOW - z->waits;
        for (int64_t c = 0; c < C; c++)
            memcpy(waiting + c * WINDOW + z->waits, in + c * z->in_step + done, take * sizeof(real));
        z->waits += take;
        if (z->waits < WINDOW) continue;
        NAME(remove)(z);
        for (int64_t r = 0; r < rows; r++) {
            real *row = tail + r * WINDOW;
            memcpy(out + r * z->out_step + hops * HOP, row, HOP * sizeof(real));
            memmove(row, row + HOP, (WINDOW - HOP) * sizeof(real));
            memset(row + WINDOW - HOP, 0, HOP * sizeof(real));
        }
        for (int64_t c = 0; c < C; c++)
            memmove(waiting + c * WINDOW, waiting + c * WINDOW + HOP, (WINDOW - HOP) * sizeof(real));
        z->waits -= HOP, hops++;
    }
    return hops;
}
