/* A model in one flat file, used where it lies; a part of `drnmf.c`. `src/drnmf/use/flat.py` writes it.
 *
 *     8 bytes    "drnmf C\n"
 *     uint32     version, layers K, listening layers, bins F, atoms N, speech atoms, units U, how many numbers follow
 *     double     level, power, floor
 *     uint64     checksum, twice: the sum of all 32-bit words before and after it, and the sum of its partial sums
 *     float      -W^T W, 1 / alpha, lambda, heard, memory, bias, maps, their bias, scale, W^T, the state after silence;
 *                from version 2 on also what a noise is learned with: v of every layer, h and g before the silence
 *
 * Everything is little-endian. Matrices lie in panels, as `engine.h` describes them.
 */

enum { VERSION_OF_FILES = 2, PANEL = 208, REGISTER = 16, MOST_ATOMS = 4096, MOST_LAYERS = 64 };

typedef struct {
    char magic[8];
    uint32_t version, K, listening, F, N, n_speech, U, numbers;
    double level, power, floor;
    uint64_t sums[2];
} Header;

/* A file's content, and where its parts lie in it. */
typedef struct {
    const void *content;
    size_t bytes;
    Network network;
    const float *silent; /* (2 N + U), the state after silence */
    const float *weight; /* (listening + K, N), v; or NULL: it cannot learn */
    const float *start;  /* (2 N), h and g before the silence */
} Model;

/* How wide the panels of so many columns are, and how many numbers the matrix takes: as `panels` in Python. */
static int64_t width_of(int64_t columns, int64_t most) {
    const int64_t n = (columns + most - 1) / most;
    return (columns + n * REGISTER - 1) / (n * REGISTER) * REGISTER;
}

static int64_t size_of_panels(int64_t rows, int64_t columns, int64_t width) {
    return rows * ((columns + width - 1) / width) * width;
}

static void add_words(uint64_t *sums, const void *words, size_t bytes) {
    uint32_t word;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, (const char *)words + i, sizeof word);
        sums[0] += word, sums[1] += sums[0];
    }
}

static int are_finite(const float *numbers, int64_t n) {
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(numbers[i]) <= FLT_MAX);
    return !bad;
}

static int is_positive(double x) { return x > 0 && x <= FLT_MAX; }

/* Whether sizes are ones that a network can have: what is multiplied below then stays far from any limit. */
static int sizes_fit(const Header *h) {
    const int layers = h->K >= 1 && h->K <= MOST_LAYERS && h->listening >= 1 && h->listening <= MOST_LAYERS;
    const int atoms = h->F == BINS && h->N >= 2 && h->N <= MOST_ATOMS && h->n_speech >= 1 && h->n_speech < h->N;
    const int options = is_positive(h->level) && is_positive(h->power) && is_positive(h->floor);
    return layers && atoms && options && h->U >= 1 && h->U <= MOST_ATOMS;
}

static const float *take(const float **at, int64_t numbers) {
    const float *taken = *at;
    *at += numbers;
    return taken;
}

/* Of all words but those that hold the sums themselves. */
static void sum_up(const void *content, size_t bytes, uint64_t *sums) {
    sums[0] = sums[1] = 0;
    add_words(sums, content, offsetof(Header, sums));
    add_words(sums, (const char *)content + sizeof(Header), bytes - sizeof(Header));
}

/* The model in a file's content. */
static int read_model(const void *content, size_t bytes, Model *model) {
    Header h;
    uint64_t sums[2];
    if (bytes < sizeof h || memcmp(content, "drnmf C\n", sizeof h.magic)) return DRNMF_NOT_A_MODEL;
    memcpy(&h, content, sizeof h);
    if (h.version > VERSION_OF_FILES) return DRNMF_NEWER_MODEL;
    if ((uintptr_t)content % sizeof(float) || h.version < 1 || !sizes_fit(&h)) return DRNMF_DAMAGED;
    const int64_t N = h.N, U = h.U, layers = h.listening + h.K, M = 2 * N + 1;
    const int64_t N_step = width_of(N, PANEL), U_step = width_of(3 * U, PANEL), map_step = width_of(M, PANEL);
    const int64_t F_step = width_of(h.F, h.F);
    const float *at = (const float *)((const char *)content + sizeof h), *first = at;
    *model = (Model){.content = content, .bytes = bytes};
    Network *z = &model->network;
    *z = (Network){.K = h.K, .F = h.F, .N = N, .n_speech = h.n_speech, .N_step = N_step, .F_step = F_step};
    z->level = h.level, z->power = h.power, z->floor = h.floor;
    z->A = take(&at, size_of_panels(N, N, N_step));
    z->rate = take(&at, layers * N);
    z->prior = (Prior){.U = U, .listening = h.listening, .U_step = U_step, .map_step = map_step, .M = M};
    z->prior.sparsity = take(&at, layers * N);
    z->prior.heard = take(&at, size_of_panels(N, 3 * U, U_step));
    z->prior.memory = take(&at, size_of_panels(U, 3 * U, U_step));
    z->prior.bias = take(&at, 4 * U);
    z->prior.maps = take(&at, size_of_panels(U, M, map_step));
    z->prior.map_bias = take(&at, M);
    z->prior.scale = take(&at, N);
    z->reconstruction = take(&at, N * F_step);
    model->silent = take(&at, 2 * N + U);
    if (h.version > 1) model->weight = take(&at, layers * N), model->start = take(&at, 2 * N);
    const int64_t numbers = at - first;
    if (h.numbers != numbers || bytes != sizeof h + numbers * sizeof(float)) return DRNMF_DAMAGED;
    sum_up(content, bytes, sums);
    return memcmp(sums, h.sums, sizeof sums) || !are_finite(first, numbers) ? DRNMF_DAMAGED : DRNMF_OK;
}
