/* All frames of several sequences through the layers in the Gram form, and the way back; a part of `arithmetic.h`. */

/* Frames in a block: enough rows for the products, few enough that what they need of each other stays in cache. */
INLINE int64_t NAME(block)(const Scan *z) { return z->B < 32 ? 128 / z->B : 4; }

/* H[k, t + 1 ...] = b^(k) = (x W_k - lambda_k) / alpha_k for n frames from t on. Without `threshold`, -lambda_k / alpha_k
 * is already there, for every frame its own. */
static TARGET void NAME(project)(const Scan *z, int64_t t, int64_t n, int32_t *active) {
    const int64_t N = z->N, frame = z->B * N;
    const int64_t along = n >= z->B; /* rows of a tile are frames, or sequences if there are more of them */
    const int64_t rows = along ? n : z->B, others = along ? z->B : n;
    const int64_t h_row = along ? frame : N, h_other = along ? N : frame;
    const int64_t x_row = along ? z->x_frame : z->x_sequence, x_other = along ? z->x_sequence : z->x_frame;
    const real *x = (const real *)z->x + t * z->x_frame, *W = z->W, *threshold = z->threshold;
    for (int64_t k = 0; k < z->K; k++, W += z->W_layer) {
        real *b = (real *)z->H + (k * (z->T + 1) + t + 1) * frame;
        for (int64_t r = 0; threshold && r < n * z->B; r++)
            for (int64_t i = 0; i < N; i++) b[r * N + i] = -threshold[k * N + i];
        for (int64_t o = 0; o < others; o++)
            NAME(add_rows)(rows, b + o * h_other, h_row, N, x + o * x_other, x_row, W, z->N_step, z->F, active);
    }
}

/* All activations H, and those of the last layer h (B, T, N). For a state s, which is h^(k-1)_t or h^(K)_{t-1},
 *
 *     h^(k)_t = max(s A_k + b^(k)_t, 0).
 */
static TARGET int NAME(forward)(const Scan *z, real *h_out) {
    const int64_t frame = z->B * z->N, layer = (z->T + 1) * frame, block = NAME(block)(z);
    int32_t *active = malloc((z->N + z->F) * sizeof *active);
    if (!active) return 0;
    const real *s = (const real *)z->H + (z->K - 1) * layer;
    for (int64_t t = 0; t < z->T; t++) {
        if (t % block == 0) NAME(project)(z, t, z->T - t < block ? z->T - t : block, active);
        for (int64_t k = 0; k < z->K; k++) {
            real *h = (real *)z->H + k * layer + (t + 1) * frame;
            const real *A = (const real *)z->A + k * z->A_layer;
            NAME(add_rows)(z->B, h, z->N, z->N, s, z->N, A, z->N_step, z->N, active);
            for (int64_t i = 0; i < frame; i++) h[i] = h[i] <= 0 ? 0 : h[i]; /* NaN stays NaN */
            s = h;
        }
        for (int64_t b = 0; b < z->B; b++)
            memcpy(h_out + b * z->h_sequence + t * z->h_frame, s + b * z->N, z->N * sizeof(real));
    }
    free(active);
    return 1;
}

/* g of n frames from t on, in G (K, n, B, N), from the last step to the first; u is dL/ds of the step after.
 *
 *     g^(k)_t = (u where h^(k)_t > 0, else 0),   u = g A_k^T, plus dL/dh_t where h^(k)_t is also an output
 */
static TARGET void NAME(back)(const Scan *z, int64_t t, int64_t n, const real *dh, real *ds, real *G, int32_t *active) {
    const int64_t N = z->N, frame = z->B * N, layer = (z->T + 1) * frame;
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t k = z->K - 1; k >= 0; k--) {
            real *g = G + (k * n + i) * frame;
            const real *h = (const real *)z->H + k * layer + (t + i + 1) * frame;
            const real *A = (const real *)z->A + k * z->A_layer;
            if (k == z->K - 1)
                for (int64_t b = 0; b < z->B; b++)
                    for (int64_t j = 0; j < N; j++)
                        ds[b * N + j] += dh[b * z->h_sequence + (t + i) * z->h_frame + j * z->h_atom];
            for (int64_t j = 0; j < frame; j++) g[j] = h[j] <= 0 ? 0 : ds[j];
            memset(ds, 0, frame * sizeof(real));
            NAME(add_rows)(z->B, ds, N, N, g, N, A, z->N_step, N, active);
        }
}

/* ds (B, N), the gradient of the state before, and sums over all rows, added to xg (K, F + 1, N) and
 * sg (K, N, N): [x, 1]^T g and s^T g. If `all` is given, it gets g of all frames, (K, T, B, N). */
static TARGET int NAME(backward)(const Scan *z, const real *dh, real *ds, real *xg, real *sg, real *all) {
    const int64_t N = z->N, F = z->F, B = z->B, frame = B * N, layer = (z->T + 1) * frame, block = NAME(block)(z);
    int32_t *active = malloc((N + F) * sizeof *active);
    real *G = malloc((z->K * block * frame + LANES) * sizeof(real)); /* the last register of a row is read in full */
    real *rows = malloc(block * B * (F + 1) * sizeof(real));         /* [x, 1], frames of all sequences */
    for (int64_t end = z->T, t; active && G && rows && end > 0; end = t) {
        t = end > block ? end - block : 0;
        NAME(back)(z, t, end - t, dh, ds, G, active);
        for (int64_t i = 0; i < (end - t) * B; i++) {
            const real *x = (const real *)z->x + i % B * z->x_sequence + (t + i / B) * z->x_frame;
            if (F) memcpy(rows + i * (F + 1), x, F * sizeof(real)); /* without features x may be NULL */
            rows[i * (F + 1) + F] = 1;
        }
        for (int64_t k = 0; k < z->K; k++) {
            const real *s = (const real *)z->H + (k ? (k - 1) * layer + frame : (z->K - 1) * layer) + t * frame;
            const real *g = G + k * (end - t) * frame;
            if (all) memcpy(all + (k * z->T + t) * frame, g, (end - t) * frame * sizeof(real));
            NAME(add_outer)(F + 1, xg + k * (F + 1) * N, N, N, rows, F + 1, g, N, (end - t) * B);
            NAME(add_outer)(N, sg + k * N * N, N, N, s, N, g, N, (end - t) * B);
        }
    }
    const int done = active && G && rows;
    free(active), free(G), free(rows);
    return done;
}
