// The steps of the Gram-form scan on thread-block clusters (NVIDIA, compute capability 9.0 and up).
//
// A cluster of R blocks walks S sequences through all steps. Block r holds columns [r n, (r + 1) n) of every layer's
// matrix in shared memory, where they stay; only vectors travel. In each step it computes
//
//     forward     h = max(s A_k + b, 0)              s the h of the step before
//     backward    g = (g' A_k^T + dL/dh) where h > 0, else 0
//
// for its columns, and sends them to the other blocks' shared memory (st.async), which count the bytes that arrive.
// A vector has two buffers, used in turn. That is enough: to send the results of step n + 1, a block must have got all
// those of step n, which every block sent after it had read the vector of step n - 1 that is now overwritten.
//
// The matrices are A (K, N, N) or, where each sequence has its own, (B, K, N, N); then S is 1.
//
// Compiled for: N atoms, K layers, R blocks in a cluster, S sequences of a cluster (1 or even), n columns of a block (a
// multiple of 4), P = R n floats of a vector, BACKWARD.

#define LANES 8    // threads that share a group of columns, each taking every 8th four of the sum's terms
#define COLUMNS 2  // of a group
#define VALUES (COLUMNS * S)

#include "cluster.cuh"

__device__ inline float4 joined(float2 x, float2 y) { return {x.x, x.y, y.x, y.y}; }

// The rows of step i: what is added before the activation, and in the backward pass whether h > 0.
struct Rows {
    float *rows;         // H with b in it, or G with dL/dh in its last layer; results go here
    const float *h;      // backward: H
    int layer, h_layer;  // rows of N floats from a layer to the next
    int B, T;
};

__device__ inline void place(int step, int T, int &t, int &k) {
#if BACKWARD
    t = T - step / K, k = K - 1 - step % K;  // ends in row 0 of the last layer: the state before the first frame
#else
    t = 1 + step / K, k = step % K;
#endif
}

__device__ inline long long cell(int k, int layer, int t, int B, int b, int j) {
    return ((long long)k * layer + (long long)t * B + b) * N + j;
}

__device__ inline void load(const Rows &at, int step, int steps, int first, int column, float (&d)[VALUES], unsigned &on) {
    on = 0;
#pragma unroll
    for (int v = 0; v < VALUES; v++) d[v] = 0.f;
    if (step >= steps) return;
    int t, k;
    place(step, at.T, t, k);
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const int b = first + v / COLUMNS, j = column + v % COLUMNS;
        if (b >= at.B || j >= N) continue;
#if BACKWARD
        // NaN counts as active: it must not be hidden. The state before the first frame is not masked.
        if (t == 0 || !(at.h[cell(k, at.h_layer, t, at.B, b, j)] <= 0.f)) on |= 1u << v;
        if (t > 0 && k == K - 1) d[v] = at.rows[cell(k, at.layer, t, at.B, b, j)];
#else
        d[v] = at.rows[cell(k, at.layer, t, at.B, b, j)];
#endif
    }
}

extern "C" __global__ void __cluster_dims__(R, 1, 1)
    steps(const float *A, float *rows, int layer, const float *h, int h_layer, int B, int T, int own) {
    extern __shared__ __align__(16) float shared[];
    float *matrix = shared;                 // (K, n, P): [k][column][term]
    float *vector = matrix + K * n * P;     // (2, S, P)
    unsigned long long *barriers = (unsigned long long *)(vector + 2 * S * P);
    const unsigned me = rank(), first_column = me * n;
    const int first = blockIdx.x / R * S, steps = T * K + BACKWARD;
    const Rows at = {rows, h, layer, h_layer, B, T};
    if (own) A += (long long)first * K * N * N;

    for (int i = threadIdx.x; i < K * n * P; i += blockDim.x) {
        const int term = i % P, column = first_column + i / P % n, k = i / P / n;
        // A (K, N, N) takes a row s to s A; the backward pass multiplies by its transpose
        const int row = BACKWARD ? column : term, side = BACKWARD ? term : column;
        matrix[i] = term < N && column < N ? A[((long long)k * N + row) * N + side] : 0.f;
    }
    for (int i = threadIdx.x; i < 2 * S * P; i += blockDim.x) {
        const int term = i % P, b = first + i / P;
        const bool inside = !BACKWARD && i < S * P && term < N && b < B;
        vector[i] = inside ? rows[cell(K - 1, layer, 0, B, b, term)] : 0.f;
    }
    if (threadIdx.x < 2)
        begin(address(barriers + threadIdx.x));
    begun();
    __syncthreads();
    meet();

    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const bool owner = group < n / COLUMNS;
    const int column = first_column + group * COLUMNS;
    const float *mine = matrix + (owner ? group : 0) * COLUMNS * P;
    // lane r sends to block r
    const unsigned to = of_block(address(vector), lane < R ? lane : 0), to_barrier = of_block(address(barriers), lane < R ? lane : 0);

    float d[VALUES], d_next[VALUES];  // lane m has what step m of eight adds; the next eight are on their way
    unsigned on = 0, on_next;
    load(at, lane, owner ? steps : 0, first, column, d_next, on_next);
    const int direction = BACKWARD ? -1 : 1;
    int k = BACKWARD ? K - 1 : 0;
    float *out = rows + cell(k, layer, BACKWARD ? T : 1, B, first, column);  // where this step's results go
    for (int step = 0; step < steps; step++) {
        const int turn = step % LANES;
        if (turn == 0) {
#pragma unroll
            for (int v = 0; v < VALUES; v++) d[v] = d_next[v];
            on = on_next;
            load(at, step + LANES + lane, owner ? steps : 0, first, column, d_next, on_next);
        }
        const int factor = !BACKWARD ? k : k + 1 < K ? k + 1 : 0;  // backward: the layer that the gradient comes through
        float sum[VALUES];
#pragma unroll
        for (int v = 0; v < VALUES; v++) sum[v] = lane == turn ? d[v] : 0.f;
        if (step > 0) {
            if (threadIdx.x == 0) expect(address(barriers + step % 2), S * R * n * sizeof(float));
            wait(address(barriers + step % 2), ((step - 1) >> 1) & 1);
        }
        const float *s = vector + step % 2 * S * P, *a = mine + factor * n * P;
#pragma unroll
        for (int fours = 0; fours < P / 4; fours += LANES) {
            const int i = 4 * (fours + lane);
            if (i >= P) break;
            float4 A_i[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) A_i[c] = *(const float4 *)(a + c * P + i);
#pragma unroll
            for (int q = 0; q < S; q++) {
                const float4 s_i = *(const float4 *)(s + q * P + i);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    float &total = sum[q * COLUMNS + c];
                    total = fmaf(s_i.x, A_i[c].x, total), total = fmaf(s_i.y, A_i[c].y, total);
                    total = fmaf(s_i.z, A_i[c].z, total), total = fmaf(s_i.w, A_i[c].w, total);
                }
            }
        }
#if BACKWARD
        const unsigned active = __shfl_sync(~0u, on, turn, LANES);
#endif
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
#pragma unroll
            for (int other = 1; other < LANES; other *= 2) sum[v] += __shfl_xor_sync(~0u, sum[v], other);
#if BACKWARD
            sum[v] = active >> v & 1 ? sum[v] : 0.f;
#else
            sum[v] = sum[v] < 0.f ? 0.f : sum[v];  // keeps NaN, unlike a maximum
#endif
        }
        const unsigned buffer = (step + 1) % 2;
        const bool odd = group % 2;
#pragma unroll
        for (int q = 0; q < S; q += 2) {
            // Two groups join, for fewer messages: the even one sends the four columns of one sequence, the odd one those
            // of the next.
            const float *even_q = sum + q * COLUMNS, *odd_q = sum + min(q + 1, S - 1) * COLUMNS;
            float2 kept = {odd ? odd_q[0] : even_q[0], odd ? odd_q[1] : even_q[1]}, got;
            got.x = __shfl_xor_sync(~0u, odd ? even_q[0] : odd_q[0], LANES);
            got.y = __shfl_xor_sync(~0u, odd ? even_q[1] : odd_q[1], LANES);
            const int sequence = q + odd;
            if (owner && lane < R && sequence < S && step + 1 < steps)
                send(to + 4 * ((buffer * S + sequence) * P + column - odd * COLUMNS), joined(odd ? got : kept, odd ? kept : got),
                     to_barrier + 8 * buffer);
        }
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            const int q = v / COLUMNS, c = v % COLUMNS;
            if (lane == v % LANES && owner && first + q < B && column + c < N) out[q * N + c] = sum[v];
        }
        const bool wrap = k == (BACKWARD ? 0 : K - 1);
        out += direction * (long long)N * (wrap ? B - (K - 1) * layer : layer);
        k = wrap ? K - 1 - k : k + direction;
    }
    meet();  // no block may leave while others write to its shared memory
}
