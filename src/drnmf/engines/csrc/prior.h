/* A frame of DR-NMF with a recurrent prior, whose equations are in `maths/prior.py`; a part of `arithmetic.h`. */

/* exp, accurate to 2e-7 in float: 2^n times a polynomial (Cephes'), which compilers turn into vectors. */
INLINE real NAME(exponential)(real x) {
    if (sizeof(real) == sizeof(double)) return exp(x);
    const float y = x < -87 ? -87 : x > 88 ? 88 : (float)x; /* NaN stays NaN */
    const union {
        float value;
        uint32_t bits;
    } nearest = {y * 1.44269504f + 12582912.f}; /* no bits are left below whole numbers, and n is in the lowest bits */
    const float n = nearest.value - 12582912.f;
    const float f = y - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    const union {
        uint32_t bits;
        float value;
    } power = {(nearest.bits + 127) << 23};
    return (p * f * f + f + 1) * power.value;
}

INLINE real NAME(sigmoid)(real x) { return 1 / (1 + NAME(exponential)(-x)); }

INLINE real NAME(hyperbolic)(real x) {
    return sizeof(real) == sizeof(double) ? tanh(x) : 1 - 2 / (1 + NAME(exponential)(2 * x));
}

/* h of `layers` from `first` on, under the sparsities times a factor, or without one if that is NULL:
 *
 *     h <- max(h + (d - G h - lambda) / alpha, 0),   d = W^T x,   G = W^T W: only rows of active atoms are read
 */
static TARGET void NAME(explain)(const Network *z, int64_t first, int64_t layers, const real *drive, const real *factor,
                                 real *h, real *a, int32_t *active) {
    const int64_t N = z->N;
    const real *sparsity = (const real *)z->prior.sparsity + first * N, *rate = (const real *)z->rate + first * N;
    for (int64_t k = 0; k < layers; k++, sparsity += N, rate += N) {
        for (int64_t i = 0; i < N; i++) a[i] = drive[i] - (factor ? factor[i] * sparsity[i] : sparsity[i]);
        NAME(add_active)(a, N, h, active, NAME(nonzero)(h, N, active), z->A, z->N_step, N);
        for (int64_t i = 0; i < N; i++) {
            const real next = h[i] + a[i] * rate[i];
            h[i] = next <= 0 ? 0 : next; /* NaN stays NaN */
        }
    }
}

/* A step of the GRU: c (U) after hearing g. `sum` is room for 4 U numbers: heard n, then both for r and z, then
 * remembered n. */
static TARGET void NAME(remember)(const Network *z, const real *g, real *restrict c, real *restrict sum, int32_t *active) {
    const Prior *p = &z->prior;
    const int64_t U = p->U;
    memcpy(sum, p->bias, 4 * U * sizeof(real));
    NAME(add_active)(sum, 3 * U, g, active, NAME(nonzero)(g, z->N, active), p->heard, p->U_step, z->N);
    NAME(add_active)(sum + U, 3 * U, c, active, NAME(nonzero)(c, U, active), p->memory, p->U_step, U);
    for (int64_t i = 0; i < U; i++) {
        const real n = NAME(hyperbolic)(sum[i] + NAME(sigmoid)(sum[U + i]) * sum[3 * U + i]);
        c[i] = n + NAME(sigmoid)(sum[2 * U + i]) * (c[i] - n);
    }
}

/* Listen, expect, explain. The state is h, g (N each) and c (U); what the mask is made of, s v h and then its gain r, is
 * returned. `room` is for 4 N + 1 + 4 U + F_step numbers, `active` for N + U. */
static TARGET const real *NAME(expecting)(const Network *z, const real *x, real *state, real *room, int32_t *active) {
    const Prior *p = &z->prior;
    const int64_t N = z->N, U = p->U, F_step = z->F_step;
    const real *W = z->reconstruction, *scale = p->scale;
    real *h = state, *g = h + N, *c = g + N;
    real *drive = room, *a = drive + N, *factor = a + N, *weight = factor + N, *sum = weight + N + 1, *e = sum + 4 * U;
    memcpy(e, x, z->F * sizeof(real));
    memset(e + z->F, 0, (F_step - z->F) * sizeof(real));
    int64_t j = 0;
    for (; j + 8 <= N; j += 8) NAME(dots)(8, drive + j, NULL, W + j * F_step, F_step, e);
    for (; j < N; j++) NAME(dots)(1, drive + j, NULL, W + j * F_step, F_step, e);

    NAME(explain)(z, 0, p->listening, drive, NULL, g, a, active);
    NAME(remember)(z, g, c, sum, active);
    memcpy(factor, p->map_bias, p->M * sizeof(real));
    NAME(add_active)(factor, p->M, c, active, NAME(nonzero)(c, U, active), p->maps, p->map_step, U);
    for (int64_t i = 0; i < p->M; i++)
        factor[i] = NAME(exponential)((real)BOUND * NAME(hyperbolic)(factor[i] / (real)BOUND));
    NAME(explain)(z, p->listening, z->K, drive, factor, h, a, active);
    for (int64_t i = 0; i < N; i++) weight[i] *= scale[i] * h[i];
    return weight;
}
