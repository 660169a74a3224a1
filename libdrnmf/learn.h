/* A model that knows a noise: its noise atoms W have moved towards a sample's frames; a part of `drnmf.c`.
 *
 *     H <- H (X W) / (H W^T W + lambda)                                     X: (T, F), H: (T, R), W: (F, R)
 *     W <- W (X^T H + kappa W_0) / (W H^T H + kappa W), columns of unit norm
 *
 * `maths/adaptation.py` says why, and `use/adaptation.py` what is refused. With other atoms, the network's -W^T W, step
 * sizes and state after silence are others, and all else stays. Rows of matrices end with zeros, as those of panels.
 */

#define PULL 6.0f
#define SPARSITY 0.3f
#define LEAST_PULL 1e-3f /* of the mean pull: an atom that is never heard stays where it is */
#define FLOOR 1e-9f
#define TINY 1e-30f
#define LEAST_VALUE 1e-6f /* of an atom's largest */
#define SHORTEST 0.3      /* seconds of a sample */
#define LONGEST 60.0
#define LISTENED 2.0 /* seconds, at least, before it is said that a sample is speech */
#define AHEAD 0.75
#define SPEECH 0.01 /* of the energy, which is removed of a sample that is nothing but speech */

enum { FIRST = 10, ITERATIONS = 20, SOME = 64 /* frames that are worked on at a time: they stay in the cache */ };

typedef struct {
    int64_t T, R, F_step, R_step;
    const float *W_0;         /* (R, F) */
    float *X, *H;             /* (T, F), (T, R) */
    float *W, *turned, *gram; /* (R, F), (F, R) and W^T W (R, R) */
    float *energy;            /* (R, R), H^T H */
    float *heard, *explained; /* (R, F), H^T X and H^T H W^T */
    float *up, *down;         /* (SOME, R) */
    int32_t *active;
} Learning;

static size_t lay_out_learning(Learning *z, float *base) {
    size_t used = 0;
    z->X = part(base, &used, z->T * z->F_step);
    z->H = part(base, &used, z->T * z->R_step);
    z->W = part(base, &used, z->R * z->F_step);
    z->turned = part(base, &used, BINS * z->R_step);
    z->gram = part(base, &used, z->R * z->R_step);
    z->energy = part(base, &used, z->R * z->R_step);
    z->heard = part(base, &used, z->R * z->F_step);
    z->explained = part(base, &used, z->R * z->F_step);
    z->up = part(base, &used, SOME * z->R_step);
    z->down = part(base, &used, SOME * z->R_step);
    z->active = (int32_t *)part(base, &used, z->R + BINS);
    return used;
}

/* out = s A, rows of `depth` numbers times a matrix of as many rows. */
static void multiply(const Learning *z, float *out, int64_t rows, const float *s, int64_t s_step, const float *A,
                     int64_t A_step, int64_t depth) {
    memset(out, 0, rows * A_step * sizeof *out);
    BEST(add_rows_f32)(rows, out, A_step, A_step, s, s_step, A, A_step, depth, z->active);
}

/* H after one update, and the sums over frames with which W is updated. */
static void update_activations(const Learning *z) {
    memset(z->energy, 0, z->R * z->R_step * sizeof(float));
    memset(z->heard, 0, z->R * z->F_step * sizeof(float));
    for (int64_t t = 0; t < z->T; t += SOME) {
        const int64_t some = z->T - t < SOME ? z->T - t : SOME;
        const float *X = z->X + t * z->F_step;
        float *H = z->H + t * z->R_step;
        multiply(z, z->up, some, X, z->F_step, z->turned, z->R_step, BINS);
        multiply(z, z->down, some, H, z->R_step, z->gram, z->R_step, z->R);
        for (int64_t i = 0; i < some * z->R_step; i++) H[i] *= z->up[i] / (z->down[i] + SPARSITY);
        BEST(add_outer_f32)(z->R, z->energy, z->R_step, z->R_step, H, z->R_step, H, z->R_step, some);
        BEST(add_outer_f32)(z->R, z->heard, z->F_step, z->F_step, H, z->R_step, X, z->F_step, some);
    }
}

static void update_atoms(const Learning *z) {
    double mean = 0;
    for (int64_t r = 0; r < z->R; r++) mean += z->energy[r * z->R_step + r] / z->R;
    multiply(z, z->explained, z->R, z->energy, z->R_step, z->W, z->F_step, z->R);
    for (int64_t r = 0; r < z->R; r++) {
        const float kappa = PULL * (z->energy[r * z->R_step + r] + LEAST_PULL * (float)mean) + FLOOR;
        const float *heard = z->heard + r * z->F_step, *explained = z->explained + r * z->F_step;
        const float *W_0 = z->W_0 + r * z->F_step;
        float *W = z->W + r * z->F_step;
        for (int i = 0; i < BINS; i++) W[i] *= (heard[i] + kappa * W_0[i]) / (explained[i] + kappa * W[i] + TINY);
        const float norm = sqrtf(dot(W, W, z->F_step)) + FLOOR;
        for (int i = 0; i < BINS; i++) W[i] /= norm;
        for (int64_t t = 0; t < z->T; t++) z->H[t * z->R_step + r] *= norm;
    }
}

static void multiply_atoms(const Learning *z) {
    for (int64_t r = 0; r < z->R; r++)
        for (int i = 0; i < BINS; i++) z->turned[i * z->R_step + r] = z->W[r * z->F_step + i];
    multiply(z, z->gram, z->R, z->W, z->F_step, z->turned, z->R_step, BINS);
}

static void move_atoms(const Learning *z) {
    memcpy(z->W, z->W_0, z->R * z->F_step * sizeof(float));
    for (int64_t i = 0; i < z->T * z->R_step; i++) z->H[i] = 0.1f;
    for (int n = 0; n < FIRST + ITERATIONS; n++) {
        if (n == 0 || n > FIRST) multiply_atoms(z);
        update_activations(z);
        if (n >= FIRST) update_atoms(z);
    }
}

/* Which of n samples is the t-th if they are heard there and back again. */
static int64_t there_and_back(int64_t t, int64_t n) {
    const int64_t at = (t % (2 * n) + 2 * n) % (2 * n);
    return at < n ? at : 2 * n - 1 - at;
}

/* Hear a sample of n from `first` to `last`, then silence. What the network hears of it goes to X (T, F), but for frames
 * that reach beyond its ends, where there is a step; `share` is what is removed from time 0 on, of the energy. */
static int hear(drnmf *d, const float *samples, int64_t n, int64_t first, int64_t last, float *X, int64_t T,
                double *share) {
    const int64_t C = d->channels, hop = HOP * d->rate / OWN_RATE; /* so that it completes one frame at most */
    const float *heard = (const float *)d->stream.room + (2 * C + 1) * BINS; /* where the last frame left it */
    float *block = malloc(hop * C * sizeof *block);
    double all = 0, removed = 0;
    int code = block ? DRNMF_OK : DRNMF_NO_MEMORY;
    drnmf_reset(d);
    for (int64_t t = first; t < last + d->latency && !code; t += hop) {
        const int64_t early = WINDOW / HOP - 1, frame = (int64_t)d->frames - early;
        if (frame == 0 && T) d->stream.loudness = d->stream.peak = 0; /* of the frames before, too, nothing is known */
        for (int64_t i = 0; i < hop * C; i++)
            block[i] = t + i / C < last ? samples[there_and_back(t + i / C, n) * C + i % C] : 0;
        code = drnmf_process(d, block, block, hop);
        for (int64_t i = 0; i < hop * C; i++) {
            const int64_t at = t + i / C - d->latency;
            if (at < 0 || at >= last) continue;
            const double x = samples[there_and_back(at, n) * C + i % C], gone = x - block[i];
            all += x * x, removed += gone * gone;
        }
        if ((int64_t)d->frames > frame + early && frame >= 0 && frame < T)
            memcpy(X + frame * d->model.network.F_step, heard, BINS * sizeof *X);
    }
    free(block);
    *share = removed / all;
    return code;
}

/* Whether samples are softer than the rounding noise of 16 bits, which a constant is, too. */
static int is_silent(const float *samples, int64_t n, int channels) {
    double variance = 0;
    for (int c = 0; c < channels; c++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n; i++) mean += samples[i * channels + c];
        mean /= n;
        for (int64_t i = 0; i < n; i++) square += pow(samples[i * channels + c] - mean, 2);
        variance += square / n / channels;
    }
    return variance < SILENCE * SILENCE / (WINDOW / 2);
}

/* Whether the model would remove some of a sample: not of one that is nothing but speech. */
static int check_for_speech(drnmf *d, const float *samples, int64_t n) {
    const double least = LISTENED * d->rate;
    const int64_t ahead = llrint(AHEAD * d->rate), last = n < least ? 2 * n * llrint(ceil(least / (2 * n))) : n;
    double share;
    const int code = hear(d, samples, n, -ahead, last, NULL, 0, &share);
    return code ? code : share < SPEECH ? DRNMF_ONLY_SPEECH : DRNMF_OK;
}

static float *gram_at(const Network *z, int64_t i, int64_t j) {
    return (float *)z->A + (j / z->N_step * z->N + i) * z->N_step + j % z->N_step;
}

/* alpha of an atom in a layer, but for what does not depend on W: the row of W^T W times v. */
static double bound(const Network *z, const float *v, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < z->N; j++) sum -= (double)*gram_at(z, i, j) * v[j];
    return sum;
}

/* Put atoms into a network, and what follows from them. */
static void put_atoms(const Learning *learned, const Model *before, const Model *model, float *room, int32_t *active) {
    const Network *z = &model->network;
    const int64_t N = z->N, first = z->n_speech;
    float *atoms = (float *)z->reconstruction, *silent = (float *)model->silent;
    for (int64_t r = 0; r < learned->R; r++) {
        const float *W = learned->W + r * z->F_step;
        float *atom = atoms + (first + r) * z->F_step, most = 0;
        for (int i = 0; i < BINS; i++) most = W[i] > most ? W[i] : most;
        for (int i = 0; i < BINS; i++) atom[i] = W[i] + LEAST_VALUE * most;
        const float norm = sqrtf(dot(atom, atom, z->F_step));
        for (int i = 0; i < BINS; i++) atom[i] /= norm;
    }
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = first; j < N; j++)
            *gram_at(z, i, j) = *gram_at(z, j, i) = -dot(atoms + i * z->F_step, atoms + j * z->F_step, z->F_step);
    for (int64_t k = 0; k < z->prior.listening + z->K; k++)
        for (int64_t i = 0; i < N; i++) {
            const float *v = model->weight + k * N;
            ((float *)z->rate)[k * N + i] *= (float)(bound(&before->network, v, i) / bound(z, v, i));
        }
    memset(room, 0, BINS * sizeof *room);
    memcpy(silent, model->start, 2 * N * sizeof *silent);
    memset(silent + 2 * N, 0, z->prior.U * sizeof *silent);
    BEST(frame_f32)(z, room, silent, room + BINS, active);
}

static int write_model(const Learning *learned, const drnmf *d, void *content) {
    Model model;
    memcpy(content, d->model.content, d->model.bytes);
    const int code = read_model(content, d->model.bytes, &model);
    if (code) return code;
    put_atoms(learned, &d->model, &model, d->stream.room, d->stream.active);
    sum_up(content, model.bytes, ((Header *)content)->sums);
    return read_model(content, model.bytes, &model); /* whose numbers may not be finite */
}

static int learn(drnmf *d, const float *samples, int64_t n, void *content) {
    const Network *network = &d->model.network;
    Learning z = {.R = network->N - network->n_speech, .F_step = network->F_step};
    double share;
    z.R_step = width_of(z.R, z.R);
    z.T = (n * OWN_RATE / d->rate - WINDOW) / HOP + 1;
    z.W_0 = (const float *)network->reconstruction + network->n_speech * z.F_step;
    float *numbers = calloc(lay_out_learning(&z, NULL), sizeof *numbers);
    if (!numbers) return DRNMF_NO_MEMORY;
    lay_out_learning(&z, numbers);
    int code = hear(d, samples, n, 0, n, z.X, z.T, &share);
    if (!code) move_atoms(&z);
    if (!code) code = write_model(&z, d, content);
    free(numbers);
    return code;
}

size_t drnmf_model_bytes(const drnmf *d) { return d->model.bytes; }

int drnmf_learn(const drnmf *other, const float *samples, size_t size, void *model) {
    drnmf *d;
    if (!other || !samples || !model) return DRNMF_BAD_VALUE;
    if (!other->model.weight) return DRNMF_CANNOT_LEARN;
    if (size < SHORTEST * other->rate) return DRNMF_SHORT_NOISE;
    const int64_t n = size < LONGEST * other->rate ? (int64_t)size : llrint(LONGEST * other->rate);
    if (is_silent(samples, n, other->channels)) return DRNMF_SILENT_NOISE;
    int code = drnmf_open_like(&d, other, other->rate, other->channels);
    if (!code) code = check_for_speech(d, samples, n);
    if (!code) code = learn(d, samples, n, model);
    drnmf_close(d);
    return code;
}

int drnmf_go_on_with(drnmf *d, const drnmf *other) {
    if (!d || !other) return DRNMF_BAD_VALUE;
    const Network *z = &d->model.network, *next = &other->model.network;
    if (z->N != next->N || z->n_speech != next->n_speech || z->prior.U != next->prior.U) return DRNMF_BAD_VALUE;
    d->model = other->model;
    return DRNMF_OK;
}
