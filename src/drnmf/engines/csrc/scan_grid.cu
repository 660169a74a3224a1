// The steps of the factored scan with every layer's dictionary spread over the shared memory of the whole GPU.
//
//     forward     h = max(s - lambda / alpha + e W / alpha, 0),  e = x - s W^T        s the h of the step before
//     backward    g = (g' - q W + dL/dh) where h > 0, else 0,    q = (g' / alpha) W^T
//
// A group of blocks takes 16 sequences through all steps. A block holds 32 atoms of all layers, where they stay, and
// the state of its atoms. One step is: p = s W^T over its own atoms; the partial sums of all blocks, added up in a
// fixed order by the block whose share they are; e = x - p, read by all; e W for its own atoms.
//
// Blocks never meet, they wait for data only, so they must all be running: the launch is cooperative. The last bit of
// every number that travels is not its own but the step's, in turn 0 and 1; a reader waits until it changes. Nothing is
// overwritten too early: who has e of a step has it from blocks that have read all partial sums of that step, and who
// has all partial sums of the next step has them from blocks that have read all of e. Each of these stores depends on
// what was read, and a location only ever has one writer and the same readers, so no fence is needed.
//
// Both products run on the matrix units, which cut numbers to TF32; each factor is split into a TF32 part and what that
// leaves, and only the product of two rests is dropped: about as exact as float32. What travels is stored as the lanes
// of a warp have it from the matrix unit: in fours of neighbouring bins 2c and 2c + 1, sequences r and r + 8, in lane
// 4r + c.
//
// Compiled for: N atoms, K layers, F bins, BLOCKS of a group, BACKWARD, RESIDUAL (0: the first layer has no s W^T).

#define B16 16                                    // sequences of a group: rows of a tile of the matrix unit
#define M 32                                      // atoms of a block: one for each lane of a warp
#define WARPS 17                                  // 33 tiles of 8 bins, two for each warp
#define THREADS (32 * WARPS)
#define TILES ((F + 7) / 8)
#define TURNS ((TILES + WARPS - 1) / WARPS)       // tiles of a warp
#define STRIDE (8 * TILES + (TILES % 2 ? 0 : 8))  // an odd number of eights: tiles read different banks
#define ROW 36                                    // of factors and of a warp's sums, for the same reason
#define SLICE (32 * TILES)                        // p and e of a group, in fours
#define SHARE ((SLICE / 4 + BLOCKS - 1) / BLOCKS) // of which a block adds up so many times four
#define PARTS ((BLOCKS + 7) / 8)                  // partial sums that a lane adds up

__device__ inline float4 look(const float4 *at) {
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ inline void put(float4 *at, float4 v) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(at), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

__device__ inline void prefetch(const float4 *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

__device__ inline float marked(float x, unsigned mark) { return __uint_as_float((__float_as_uint(x) & ~1u) | mark); }

__device__ inline void send(float4 *to, float4 v, unsigned mark) {
    put(to, make_float4(marked(v.x, mark), marked(v.y, mark), marked(v.z, mark), marked(v.w, mark)));
}

// (a ^ mark) | (b ^ mark), in one instruction
__device__ inline unsigned differ(float a, float b, unsigned mark) {
    unsigned bits;
    asm("lop3.b32 %0, %1, %2, %3, 0x7e;" : "=r"(bits) : "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(mark));
    return bits;
}

// Fours from `i * stride`, the last one from `last`. All are asked for before any is waited for, late ones again.
template <int COUNT>
__device__ inline void receive(float4 (&v)[COUNT], const float4 *from, int stride, int last, unsigned mark) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = look(from + (i < COUNT - 1 ? i * stride : last));
    bool late;
    do {
        late = false;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if ((differ(v[i].x, v[i].y, mark) | differ(v[i].z, v[i].w, mark)) & 1) {
                v[i] = look(from + (i < COUNT - 1 ? i * stride : last));
                late = true;
            }
    } while (late);
    __syncwarp();
}

__device__ inline float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

__device__ inline float4 from_lane(float4 a, int distance) {
    return {__shfl_xor_sync(~0u, a.x, distance), __shfl_xor_sync(~0u, a.y, distance),
            __shfl_xor_sync(~0u, a.z, distance), __shfl_xor_sync(~0u, a.w, distance)};
}

struct Split {
    unsigned high, low;
};

// The matrix unit ignores the last 13 bits: `half` of their range rounds; without it the high part is cut, which is
// faster.
__device__ inline Split split(float x, unsigned half = 0) {
    const unsigned high = (__float_as_uint(x) + half) & 0xffffe000u;
    return {high, __float_as_uint(x - __uint_as_float(high))};
}

// sum (16 x 8) += a (16 x 8) b (8 x 8). Lane l holds rows l / 4 and l / 4 + 8 of a, in columns l % 4 and l % 4 + 4;
// rows l % 4 and l % 4 + 4 of b, in column l / 4; rows as a's of the sum, in columns 2 (l % 4) and the next.
__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct Left {  // a, split; rounded, so that what is dropped has either sign
    unsigned high[4], low[4];
    __device__ inline Left(float a0, float a1, float a2, float a3) {
        const float a[4] = {a0, a1, a2, a3};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Split s = split(a[i], 0x1000u);
            high[i] = s.high, low[i] = s.low;
        }
    }
};

struct Right {  // b, split
    Split b0, b1;
};

// Sums of the large and of the small parts are kept apart: two chains of additions take less time than one.
struct Sum {
    float large[4] = {}, small[4] = {};
    __device__ inline void add(const Left &a, const Right &b) {
        multiply(small, a.low, b.b0.high, b.b1.high);
        multiply(large, a.high, b.b0.high, b.b1.high);
        multiply(small, a.high, b.b0.low, b.b1.low);
    }
    __device__ inline float operator[](int i) const { return large[i] + small[i]; }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    steps(const float *W, const float *alpha, const float *threshold, const float *x, float *rows, int layer,
          const float *h, int h_layer, float *kept, int kept_row, float4 *partial, float4 *error, int first, int B,
          int T) {
    extern __shared__ __align__(16) float shared[];
    float *dictionary = shared;                      // (K, M, STRIDE)
    float *factor = dictionary + K * M * STRIDE;     // (16, ROW): what multiplies W^T
    float *sums = factor + B16 * ROW;                // (WARPS, 16, ROW)
    float *inverses = sums + WARPS * B16 * ROW, *thresholds = inverses + K * M;  // (K, M), 1 / alpha and lambda / alpha
    const int group = blockIdx.x / BLOCKS, block = blockIdx.x % BLOCKS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    partial += group * BLOCKS * SLICE, error += group * SLICE;
    first += group * B16;  // sequence

    for (int i = threadIdx.x; i < K * M * STRIDE; i += THREADS) {
        const int atom = i % M, f = i / M % STRIDE, k = i / M / STRIDE, j = block * M + atom;
        dictionary[(k * M + atom) * STRIDE + f] = j < N && f < F ? W[((long long)k * F + f) * N + j] : 0.f;
    }
    for (int i = threadIdx.x; i < K * M; i += THREADS) {
        const int j = block * M + i % M;
        inverses[i] = j < N ? 1.f / alpha[i / M * N + j] : 1.f;
        thresholds[i] = j < N ? threshold[i / M * N + j] : 0.f;
    }

    // Thread (b, lane), b = warp < 16, has the state of atom j in sequence first + b.
    const int b = warp, j = block * M + lane;
    const bool stateful = b < B16, inside = stateful && j < N && first + b < B;
#define CELL(k, layer, t) (((long long)(k) * (layer) + (long long)(t) * B + first + b) * N + j)
    int k = BACKWARD ? K - 1 : 0, t = BACKWARD ? T : 1;
    float z = 0.f;
#if BACKWARD
    if (inside && !(h[CELL(k, h_layer, t)] <= 0.f)) z = rows[CELL(k, layer, t)];
    if (inside) rows[CELL(k, layer, t)] = z;
#else
    if (inside) z = rows[CELL(K - 1, layer, 0)];
#endif
    __syncthreads();

    for (int step = 0; step < T * K; step++) {
        // Forward: layer k of frame t. Backward: the gradient goes back through layer k of frame t, to the step before.
        const int k_out = !BACKWARD ? k : k > 0 ? k - 1 : K - 1, t_out = !BACKWARD || k > 0 ? t : t - 1;
        const unsigned mark = step % 2;
        const float inverse = inverses[k * M + lane];
        if (stateful) factor[b * ROW + lane] = BACKWARD ? z * inverse : z;
        // What the end of the step needs is asked for now.
#if BACKWARD
        const bool framed = inside && t_out > 0;  // the state before the first frame is not masked
        const bool on = !framed || !(h[CELL(k_out, h_layer, t_out)] <= 0.f);
        const float d = framed && k_out == K - 1 ? rows[CELL(k_out, layer, t_out)] : 0.f;
#endif
        __syncthreads();

        const float *w = dictionary + k * M * STRIDE;
        {   // p = factor W^T over this block's atoms, 8 bins at a time
            const float *u = factor + lane / 4 * ROW + lane % 4;
            const Left a[M / 8] = {{u[0], u[8 * ROW], u[4], u[8 * ROW + 4]},
                                   {u[8], u[8 * ROW + 8], u[12], u[8 * ROW + 12]},
                                   {u[16], u[8 * ROW + 16], u[20], u[8 * ROW + 20]},
                                   {u[24], u[8 * ROW + 24], u[28], u[8 * ROW + 28]}};
#pragma unroll 2
            for (int tile = warp; tile < TILES; tile += WARPS) {
                Sum p;
                const float *w_tile = w + lane % 4 * STRIDE + tile * 8 + lane / 4;
#pragma unroll
                for (int i = 0; i < M / 8; i++)
                    p.add(a[i], {split(w_tile[i * 8 * STRIDE]), split(w_tile[(i * 8 + 4) * STRIDE])});
                send(partial + block * SLICE + tile * 32 + lane, make_float4(p[0], p[1], p[2], p[3]), mark);
            }
        }
        // The second product's part of the dictionary, while the partial sums travel.
        Right b_tiles[TURNS][M / 8];
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int tile = min(turn * WARPS + warp, TILES - 1);
#pragma unroll
            for (int i = 0; i < M / 8; i++) {
                const float2 w_i = *(const float2 *)(w + (i * 8 + lane / 4) * STRIDE + tile * 8 + lane % 4 * 2);
                b_tiles[turn][i] = {split(w_i.x), split(w_i.y)};
            }
        }
        for (int i = warp; i < SHARE && block * SHARE + i < SLICE / 4; i += WARPS) {
            // All blocks' sums of this block's share: four lanes have neighbouring fours, 8 times four lanes a part of
            // the blocks each.
            const int four = (block * SHARE + i) * 4 + lane % 4;
            float4 e = {0.f, 0.f, 0.f, 0.f}, p = e, parts[PARTS];
#if !BACKWARD
            const int frame = gridDim.x / BLOCKS * SLICE;
            const float4 *x_i = (const float4 *)x + (long long)(t - 1) * frame + group * SLICE + four;
            e = *x_i;
            if (k == 0 && t < T) prefetch(x_i + frame);
#endif
            const int last = min(PARTS * 8 - 8 + lane / 4, BLOCKS - 1);  // whose sum some lanes read, but do not add
            receive(parts, partial + lane / 4 * SLICE + four, 8 * SLICE, (last - lane / 4) * SLICE, mark);
#pragma unroll
            for (int n = 0; n < PARTS; n++)
                if (n * 8 + lane / 4 < BLOCKS) p = add(p, parts[n]);
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2) p = add(p, from_lane(p, distance));
            if (RESIDUAL || k > 0) e = {e.x - p.x, e.y - p.y, e.z - p.z, e.w - p.w};
            if (lane < 4) {
                send(error + four, e, mark);
                const int f = four / 32 * 8 + four % 4 * 2, r = four % 32 / 4;
                const float4 v = BACKWARD ? p : e;
                if (kept) {
                    float *out = kept + (((long long)k * T + t - 1) * B + first + r) * kept_row + f;
                    if (first + r < B) {
                        if (f < F) out[0] = v.x;
                        if (f + 1 < F) out[1] = v.y;
                    }
                    if (first + r + 8 < B) {
                        if (f < F) out[8 * kept_row] = v.z;
                        if (f + 1 < F) out[8 * kept_row + 1] = v.w;
                    }
                }
            }
        }
        __syncthreads();  // before, e can hardly be there: to look for it would only slow the others down
        {   // e W for this block's atoms, over this warp's bins
            Sum sum[M / 8];
            float4 e[TURNS];
            const int last = min((TURNS - 1) * WARPS + warp, TILES - 1) - warp;
            if (warp < TILES) receive(e, error + warp * 32 + lane, WARPS * 32, last * 32, mark);
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++)
                if (turn * WARPS + warp < TILES) {
                    const Left a(e[turn].x, e[turn].z, e[turn].y, e[turn].w);  // bins 2c first, and in b_tiles
#pragma unroll
                    for (int i = 0; i < M / 8; i++) sum[i].add(a, b_tiles[turn][i]);
                }
            float *out = sums + (warp * B16 + lane / 4) * ROW + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < M / 8; i++) {
                *(float2 *)(out + i * 8) = make_float2(sum[i][0], sum[i][1]);
                *(float2 *)(out + 8 * ROW + i * 8) = make_float2(sum[i][2], sum[i][3]);
            }
        }
        __syncthreads();
        if (stateful) {
            float total = 0.f;
#pragma unroll
            for (int i = 0; i < WARPS; i++) total += sums[(i * B16 + b) * ROW + lane];
#if BACKWARD
            const float u = z + total + d;
            z = on ? u : 0.f;
#else
            const float u = z - thresholds[k * M + lane] + total * inverse;
            z = u < 0.f ? 0.f : u;  // keeps NaN, unlike a maximum
#endif
            if (inside) rows[CELL(k_out, layer, t_out)] = z;
        }
        k = BACKWARD ? k_out : k + 1 < K ? k + 1 : 0;
        t = BACKWARD ? t_out : k == 0 ? t + 1 : t;
    }
}
