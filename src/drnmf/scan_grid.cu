// The steps of the factored scan with every layer's dictionary spread over the shared memory of the whole GPU.
//
//     forward     h = max(s - lambda / alpha + (x - s W^T) W / alpha, 0)        s the h of the step before
//     backward    g = (g' - (g' / alpha) W^T W + dL/dh) where h > 0, else 0
//
// A group of blocks takes 16 sequences through all steps. A block holds 32 atoms of all layers, where they stay, and the
// state of its atoms. One step is: p = s W^T over its own atoms; the partial sums of all blocks, added up in a fixed
// order by the block whose share they are; e = x - p, read by all; e W for its own atoms. Blocks meet once a step, at a
// counter in memory, so they must all be running: the launch is cooperative. For e they do not meet: a reader waits until
// what it reads is not NOTHING any more. There are four buffers for e. The writer of a share puts NOTHING into it two
// steps ahead, after a meeting by which all have read what was there, and before one that all pass before they look.
//
// Both products run on the matrix units, which round to TF32; each factor is split into a TF32 part and what that leaves,
// and only the product of two rests is dropped: about as exact as float32.
//
// Compiled for: N atoms, K layers, F bins, BLOCKS of a group, BACKWARD, RESIDUAL (0: the first layer has no s W^T).

#define B16 16                                    // sequences of a group: rows of a tile of the matrix unit
#define M 32                                      // atoms of a block: one for each lane of a warp
#define WARPS 17                                  // 33 tiles of 8 bins, two for each warp
#define THREADS (32 * WARPS)
#define TILES ((F + 7) / 8)
#define STRIDE (8 * TILES + (TILES % 2 ? 0 : 8))  // an odd number of eights: tiles read different banks
#define ROW 36                                    // of a warp's sums, for the same reason
#define SLICE (F * B16 / 4)                       // p and e of a group, in fours: [bin][sequence]
#define SHARE ((SLICE + BLOCKS - 1) / BLOCKS)     // of which a block adds up so many
#define TURNS ((SHARE + 2 * WARPS - 1) / (2 * WARPS))
#define BUFFERS 4                                 // of e
#define NOTHING 0xffffffffu                       // a NaN that no arithmetic produces
#define READS ((SLICE + THREADS - 1) / THREADS)   // fours of e that a thread reads

__device__ inline void meet(int *counter, int &round) {
    __syncthreads();
    round++;
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
        int arrived;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
        while (arrived < round * BLOCKS);
    }
    __syncthreads();
}

__device__ inline float4 arrived(const float4 *from) {
    float4 v;
    do asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                    : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    while (__float_as_uint(v.x) == NOTHING || __float_as_uint(v.y) == NOTHING || __float_as_uint(v.z) == NOTHING ||
           __float_as_uint(v.w) == NOTHING);
    return v;
}

__device__ inline float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

__device__ inline float4 from_lane(float4 a, int distance) {
    return {__shfl_xor_sync(~0u, a.x, distance), __shfl_xor_sync(~0u, a.y, distance),
            __shfl_xor_sync(~0u, a.z, distance), __shfl_xor_sync(~0u, a.w, distance)};
}

struct Split {
    unsigned high, low;
};

__device__ inline Split split(float x) {
    Split s;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(s.high) : "f"(x));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(s.low) : "f"(x - __uint_as_float(s.high)));
    return s;
}

// sum (16 x 8) += a (16 x 8) b (8 x 8). Lane l holds rows l / 4 and l / 4 + 8 of a, in columns l % 4 and l % 4 + 4; rows
// l % 4 and l % 4 + 4 of b, in column l / 4; rows as a's of the sum, in columns 2 (l % 4) and the next.
__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct Left {  // a, split
    unsigned high[4], low[4];
};

// The tile of a matrix stored as [column of a][row of a], 16 rows.
__device__ inline Left left(const float *columns, int lane) {
    Left a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Split s = split(columns[(lane % 4 + i / 2 * 4) * B16 + lane / 4 + i % 2 * 8]);
        a.high[i] = s.high, a.low[i] = s.low;
    }
    return a;
}

// Sums of the large and of the small parts are kept apart: two chains of additions take less time than one.
struct Sum {
    float large[4] = {}, small[4] = {}, less[4] = {};
    __device__ inline void add(const Left &a, float b0, float b1) {
        const Split s0 = split(b0), s1 = split(b1);
        multiply(small, a.low, s0.high, s1.high);
        multiply(less, a.high, s0.low, s1.low);
        multiply(large, a.high, s0.high, s1.high);
    }
    __device__ inline float operator[](int i) const { return large[i] + (small[i] + less[i]); }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    steps(const float *W, const float *alpha, const float *threshold, const float *x, float *rows, int layer,
          const float *h, int h_layer, float *partial, float *error, int *counters, int first, int B, int T) {
    extern __shared__ __align__(16) float shared[];
    float *dictionary = shared;                        // (K, M, STRIDE)
    float *factor = dictionary + K * M * STRIDE;       // (M, 16): what multiplies W^T
    float *e = factor + M * B16;                       // (8 TILES, 16)
    float *sums = e + 8 * TILES * B16;                 // (WARPS, 16, ROW)
    float *alphas = sums + WARPS * B16 * ROW, *thresholds = alphas + K * M;  // (K, M)
    const int group = blockIdx.x / BLOCKS, block = blockIdx.x % BLOCKS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    partial += (long long)group * BLOCKS * 4 * SLICE, error += group * BUFFERS * 4 * SLICE;
    int *counter = counters + group, round = 0;
    first += group * B16;  // sequence

    for (int i = threadIdx.x; i < K * M * STRIDE; i += THREADS) {
        const int atom = i % M, f = i / M % STRIDE, k = i / M / STRIDE, j = block * M + atom;
        dictionary[(k * M + atom) * STRIDE + f] = j < N && f < F ? W[((long long)k * F + f) * N + j] : 0.f;
    }
    for (int i = threadIdx.x; i < 8 * TILES * B16; i += THREADS) e[i] = 0.f;
    for (int i = threadIdx.x; i < K * M; i += THREADS) {
        const int j = block * M + i % M;
        alphas[i] = j < N ? alpha[i / M * N + j] : 1.f;
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
        // Forward: layer k of frame t. Backward: the gradient goes back through layer k of frame t, to the step before it.
        const int k_out = !BACKWARD ? k : k > 0 ? k - 1 : K - 1, t_out = !BACKWARD || k > 0 ? t : t - 1;
        const float a = alphas[k * M + lane];
        if (stateful) factor[lane * B16 + b] = BACKWARD ? z / a : z;
        // What the end of the step needs is asked for now.
#if BACKWARD
        const bool framed = inside && t_out > 0;  // the state before the first frame is not masked
        const bool on = !framed || !(h[CELL(k_out, h_layer, t_out)] <= 0.f);
        const float d = framed && k_out == K - 1 ? rows[CELL(k_out, layer, t_out)] : 0.f;
#endif
        float4 x_share[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            x_share[turn] = {0.f, 0.f, 0.f, 0.f};
#if !BACKWARD
            const int i = (turn * WARPS + warp) * 2 + lane % 2, four = block * SHARE + i;
            if (lane < 2 && i < SHARE && four < SLICE)
                x_share[turn] = ((const float4 *)x)[((long long)(t - 1) * (gridDim.x / BLOCKS) + group) * SLICE + four];
#endif
        }
        __syncthreads();

        const float *w = dictionary + k * M * STRIDE;
        {   // p = factor W^T over this block's atoms, 8 bins at a time
            Left u[M / 8];
#pragma unroll
            for (int i = 0; i < M / 8; i++) u[i] = left(factor + i * 8 * B16, lane);
#pragma unroll 2
            for (int tile = warp; tile < TILES; tile += WARPS) {
                Sum p;
                const float *w_tile = w + lane % 4 * STRIDE + tile * 8 + lane / 4;
#pragma unroll
                for (int i = 0; i < M / 8; i++) p.add(u[i], w_tile[i * 8 * STRIDE], w_tile[(i * 8 + 4) * STRIDE]);
                const int f = tile * 8 + lane % 4 * 2;
                float *out = partial + block * 4 * SLICE + f * B16 + lane / 4;
                if (f < F) __stcg(out, p[0]), __stcg(out + 8, p[2]);
                if (f + 1 < F) __stcg(out + B16, p[1]), __stcg(out + B16 + 8, p[3]);
            }
        }
        meet(counter, round);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            // All blocks' sums of this block's share: two lanes have neighbouring fours, 16 pairs of lanes a part of the
            // blocks each.
            const int i = (turn * WARPS + warp) * 2 + lane % 2, four = block * SHARE + i;
            const bool adds = i < SHARE && four < SLICE;
            float4 p = {0.f, 0.f, 0.f, 0.f};
            if (adds)
#pragma unroll
                for (int other = 0; other < BLOCKS; other += 16)
                    if (other + lane / 2 < BLOCKS)
                        p = add(p, __ldcg((const float4 *)partial + (other + lane / 2) * SLICE + four));
#pragma unroll
            for (int distance = 2; distance < 32; distance *= 2) p = add(p, from_lane(p, distance));
            const float residual = RESIDUAL || k > 0 ? 1.f : 0.f;
            const float4 x_i = x_share[turn];
            if (adds && lane < 2) {
                float4 *e_share = (float4 *)error + four;
                __stcg(e_share + step % BUFFERS * SLICE, make_float4(x_i.x - residual * p.x, x_i.y - residual * p.y,
                                                                     x_i.z - residual * p.z, x_i.w - residual * p.w));
                const float nothing = __uint_as_float(NOTHING);
                __stcg(e_share + (step + 2) % BUFFERS * SLICE, make_float4(nothing, nothing, nothing, nothing));
            }
        }
        {
            float4 read[READS];
#pragma unroll
            for (int i = 0; i < READS; i++)
                if (threadIdx.x + i * THREADS < SLICE)
                    read[i] = arrived((const float4 *)error + step % BUFFERS * SLICE + threadIdx.x + i * THREADS);
#pragma unroll
            for (int i = 0; i < READS; i++)
                if (threadIdx.x + i * THREADS < SLICE) ((float4 *)e)[threadIdx.x + i * THREADS] = read[i];
        }
        __syncthreads();

        {   // e W for this block's atoms, over this warp's bins
            Sum sum[M / 8];
            for (int tile = warp; tile < TILES; tile += WARPS) {
                const Left e_tile = left(e + tile * 8 * B16, lane);
                const float *w_tile = w + lane / 4 * STRIDE + tile * 8 + lane % 4;
#pragma unroll
                for (int i = 0; i < M / 8; i++) sum[i].add(e_tile, w_tile[i * 8 * STRIDE], w_tile[i * 8 * STRIDE + 4]);
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
            const float u = z - thresholds[k * M + lane] + total / a;
            z = u < 0.f ? 0.f : u;  // keeps NaN, unlike a maximum
#endif
            if (inside) rows[CELL(k_out, layer, t_out)] = z;
        }
        k = BACKWARD ? k_out : k + 1 < K ? k + 1 : 0;
        t = BACKWARD ? t_out : k == 0 ? t + 1 : t;
    }
}
