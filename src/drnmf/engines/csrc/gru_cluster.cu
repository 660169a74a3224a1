// A GRU's steps on thread-block clusters (NVIDIA, compute capability 9.0 and up); `gru_cluster.py` has the equations.
//
// A cluster of R blocks walks S sequences through all steps. Block i has units [i n, (i + 1) n), each of its warps four
// of them. The weights stay where they are, in registers and, where these are too few, in shared memory; only vectors
// travel. Every step has, for each unit and sequence, three products of U terms (forward: the gates' rows of W_hh with
// c) or one of 3 U terms (backward: a column of W_hh with the gradients of the gates). The lanes of a warp share the
// terms, and put their sums together such that each lane ends with one unit of one sequence. It takes the step, and the
// results go to the other blocks' shared memory (st.async), which count the bytes that arrive.
//
// A vector has two buffers, used in turn. That is enough: to send the results of step i + 1, a warp must have got all
// those of step i, which every warp sent after it had read the vector of step i - 1 that is now overwritten.
//
// Compiled for: U units, R blocks in a cluster, n units of a block (a multiple of 4), P = R n >= U, S sequences of a
// cluster (1, 2, 4 or 8), HELD rounds of terms whose weights are in registers (1 or more), THREADS = 8 n, BACKWARD.

#if BACKWARD
#define COLUMNS 1      // products of a unit
#define TERMS (3 * P)  // of a product
#else
#define COLUMNS 3
#define TERMS P
#endif
#define ROWS (4 * COLUMNS)                 // products of a warp and a sequence
#define ROUND 128                          // terms that a warp takes at a time, four a lane
#define ROUNDS ((TERMS + ROUND - 1) / ROUND)
#define REST (TERMS > HELD * ROUND ? TERMS - HELD * ROUND : 0)  // terms whose weights are in shared memory
#define Q (S < 4 ? S : 4)                  // sequences whose sums a lane has at a time
#define PARTS (S / Q)
#define MESSAGES ((R * S + 31) / 32)       // a lane's, of four units
#define AHEAD 6                            // steps from a value's way into the second-level cache to its use

#include "cluster.cuh"

__device__ inline void fetch(const float *pointer) { asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer)); }

// The weight of a term in a product of a unit of W: W_hh (3 U, U) forward, its transpose (U, 3 U) backward.
__device__ inline float weight(const float *W, int unit, int column, int term) {
    const int i = term % P, gate = BACKWARD ? term / P : column;
    if (unit >= U || i >= U || term >= TERMS) return 0.f;
    return BACKWARD ? W[(unit * 3 + gate) * U + i] : W[(gate * U + unit) * U + i];
}

__device__ inline void add_products(float &total, float4 x, float4 y) {
    total = fmaf(x.x, y.x, total), total = fmaf(x.y, y.y, total);
    total = fmaf(x.z, y.z, total), total = fmaf(x.w, y.w, total);
}

// Lane l ends with value l % (2 half) of twice `half`, summed over the lanes that differ from it in these bits.
template <int half>
__device__ inline void scatter(float (&x)[Q * ROWS], int lane) {
    const bool upper = lane & half;
#pragma unroll
    for (int i = 0; i < half * COLUMNS; i++) {
        const float low = x[i], high = x[i + half * COLUMNS];
        x[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, half);
    }
    if constexpr (half > 1) scatter<half / 2>(x, lane);
}

// The products of unit lane % 4 of the warp and sequence lane / 4 % S.
__device__ inline void products(const float4 (&held)[HELD][ROWS], const float *matrix, const float *vector, int lane,
                                float (&sum)[COLUMNS]) {
    float parts[PARTS][COLUMNS];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        float x[Q * ROWS];  // (Q, 4, COLUMNS)
#pragma unroll
        for (int i = 0; i < Q * ROWS; i++) x[i] = 0.f;
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const int i = round * ROUND + 4 * lane;
            if (i < TERMS) {
                float4 weights[ROWS];
#pragma unroll
                for (int row = 0; row < ROWS; row++)
                    weights[row] = round < HELD ? held[round < HELD ? round : 0][row]
                                                : *(const float4 *)(matrix + row * REST + i - HELD * ROUND);
#pragma unroll
                for (int q = 0; q < Q; q++) {
                    const float4 s = *(const float4 *)(vector + (part * Q + q) * TERMS + i);
#pragma unroll
                    for (int row = 0; row < ROWS; row++) add_products(x[q * ROWS + row], s, weights[row]);
                }
            }
        }
        __syncwarp();
        scatter<2 * Q>(x, lane);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) parts[part][c] = x[c];
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        sum[c] = parts[0][c];
#pragma unroll
        for (int other = 4 * Q; other < (PARTS == 2 ? 16 : 32); other *= 2)
            sum[c] += __shfl_xor_sync(~0u, sum[c], other);
        if (PARTS == 2) {  // the upper lanes take the second part
            const float low = parts[0][c], high = parts[PARTS - 1][c];
            const bool upper = lane & 16;
            sum[c] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 16);
        }
    }
}

__device__ inline float4 four_units(float x, int sequence) {
    const int from = 4 * sequence;
    return {__shfl_sync(~0u, x, from), __shfl_sync(~0u, x, from + 1), __shfl_sync(~0u, x, from + 2),
            __shfl_sync(~0u, x, from + 3)};
}

__device__ inline float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Rows of all sequences, time after time:
//   c (T + 1, B, U)      the state before each frame, and after the last one; forward writes all but the first
//   gates (T, B, 4, U)   r, z, n and what n remembers, c W_hn^T + b_hn: kept for the backward pass, or null
// forward:
//   heard (T, B, 3, U)   g W_ih^T + b_ih
//   bias (3, U)          b_hh
// backward:
//   dc (T, B, U)         from outside: dL/dc of every frame
//   dheard, dremembered (T, B, 3, U)   the gradients of the two addends of the gates
//   dc0 (B, U)           the gradient of the first state
extern "C" __global__ void __cluster_dims__(R, 1, 1) __launch_bounds__(THREADS, 1)
#if BACKWARD
    steps(const float *W, const float *c, const float *gates, const float *dc, float *dheard, float *dremembered,
          float *dc0, int B, int T) {
#else
    steps(const float *W, float *c, float *gates, const float *heard, const float *bias, int B, int T) {
#endif
    extern __shared__ __align__(16) float shared[];
    float *vector = shared;                    // (2, S, TERMS)
    float *matrix = vector + 2 * S * TERMS;    // (n, COLUMNS, REST)
    unsigned long long *barriers = (unsigned long long *)(matrix + n * COLUMNS * REST);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int me = rank(), first = blockIdx.x / R * S, first_unit = me * n + 4 * warp;

    for (int i = threadIdx.x; i < n * COLUMNS * REST; i += THREADS) {
        const int row = i / (REST + !REST), term = HELD * ROUND + i % (REST + !REST);
        matrix[i] = weight(W, me * n + row / COLUMNS, row % COLUMNS, term);
    }
    float4 held[HELD][ROWS];
#pragma unroll
    for (int round = 0; round < HELD; round++)
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const int unit = first_unit + row / COLUMNS, column = row % COLUMNS, term = round * ROUND + 4 * lane;
            held[round][row] = {weight(W, unit, column, term), weight(W, unit, column, term + 1),
                                weight(W, unit, column, term + 2), weight(W, unit, column, term + 3)};
        }
    for (int i = threadIdx.x; i < 2 * S * TERMS; i += THREADS) {
        const int term = i % TERMS, b = first + i / TERMS;
        const bool state = !BACKWARD && i < S * TERMS && term < U && b < B;
        vector[i] = state ? c[(long long)b * U + term] : 0.f;
    }
    if (threadIdx.x < 2) begin(address(barriers + threadIdx.x));
    begun();
    __syncthreads();
    meet();

    // Every lane has one unit of one sequence; with less than eight sequences several have the same, and one writes it.
    const int unit = first_unit + lane % 4, b = first + lane / 4 % S;
    const bool inside = unit < U && b < B, writes = inside && lane < 4 * S;
    const long long row = inside ? b : 0;  // of the B in a frame
    const int u = inside ? unit : 0;
    // It sends the four units of one sequence to one or two blocks.
    unsigned to[MESSAGES], to_barrier[MESSAGES];
#pragma unroll
    for (int m = 0; m < MESSAGES; m++) {
        const int block = min((lane + 32 * m) / S, R - 1);
        to[m] = of_block(address(vector), block) + 4 * (lane % S * TERMS + first_unit);
        to_barrier[m] = of_block(address(barriers), block);
    }
    const float *mine = matrix + 4 * warp * COLUMNS * REST;

#if BACKWARD
    const int steps = T + 1;  // the last one for the state before the first frame
    float carried = 0.f;      // dL/dc that came straight from the state after
    float next[6] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
#else
    const int steps = T;
    const float bias_r = inside ? bias[u] : 0.f, bias_z = inside ? bias[U + u] : 0.f, bias_n = inside ? bias[2 * U + u] : 0.f;
    float state = inside ? c[row * U + u] : 0.f;
    float next[3] = {0.f, 0.f, 0.f};
#endif
    for (int step = -1; step < steps; step++) {
        // What the next step needs from outside is on its way during this one; step -1 does nothing else.
#if BACKWARD
        float now[6];
#else
        float now[3];
#endif
#pragma unroll
        for (int i = 0; i < sizeof(now) / sizeof(float); i++) now[i] = next[i];
#if BACKWARD
        const int coming = T - 2 - step, later = coming - AHEAD;  // frames
        if (inside && coming >= 0) {
            const long long at = (long long)coming * B + row;
            next[0] = dc[at * U + u], next[1] = c[at * U + u];
#pragma unroll
            for (int i = 0; i < 4; i++) next[2 + i] = gates[(at * 4 + i) * U + u];
        }
        if (coming < 0) next[0] = 0.f;  // nothing comes from outside to the state before the first frame
        if (writes && later >= 0) {
            const long long at = (long long)later * B + row;
            fetch(dc + at * U + u), fetch(c + at * U + u);
#pragma unroll
            for (int i = 0; i < 4; i++) fetch(gates + (at * 4 + i) * U + u);
        }
#else
        const int coming = step + 1, later = coming + AHEAD;
        if (inside && coming < T) {
            const long long at = (long long)coming * B + row;
#pragma unroll
            for (int i = 0; i < 3; i++) next[i] = heard[(at * 3 + i) * U + u];
        }
        if (writes && later < T) {
            const long long at = (long long)later * B + row;
#pragma unroll
            for (int i = 0; i < 3; i++) fetch(heard + (at * 3 + i) * U + u);
        }
#endif
        if (step < 0) continue;
        if (step > 0) {
            if (threadIdx.x == 0) expect(address(barriers + step % 2), S * TERMS * sizeof(float));
            wait(address(barriers + step % 2), ((step - 1) >> 1) & 1);
        }
        float sum[COLUMNS];
        products(held, mine, vector + step % 2 * S * TERMS, lane, sum);
        const unsigned buffer = (step + 1) % 2, offset = buffer * S * TERMS;

#if BACKWARD
        const float d = inside ? now[0] + carried + sum[0] : 0.f;  // dL/dc of the state after frame T - 1 - step
        if (step == T) {
            if (writes) dc0[row * U + u] = d;
            continue;
        }
        const float before = now[1], r = now[2], z = now[3], n_ = now[4], remembered = now[5];
        const float dn = d * (1.f - z) * (1.f - n_ * n_), dz = d * (before - n_) * z * (1.f - z);
        const float dr = dn * remembered * r * (1.f - r), dr_n = dn * r;
        carried = d * z;
        const float4 messages[3] = {four_units(dr, lane % S), four_units(dz, lane % S), four_units(dr_n, lane % S)};
#pragma unroll
        for (int m = 0; m < MESSAGES; m++)
            if ((lane + 32 * m) / S < R)
#pragma unroll
                for (int gate = 0; gate < 3; gate++)
                    send(to[m] + 4 * (offset + gate * P), messages[gate], to_barrier[m] + 8 * buffer);
        if (writes) {
            const long long at = ((long long)(T - 1 - step) * B + row) * 3 * U + u;
            dheard[at] = dr, dheard[at + U] = dz, dheard[at + 2 * U] = dn;
            dremembered[at] = dr, dremembered[at + U] = dz, dremembered[at + 2 * U] = dr_n;
        }
#else
        const float r = sigmoid(now[0] + (sum[0] + bias_r)), z = sigmoid(now[1] + (sum[1] + bias_z));
        const float remembered = sum[2] + bias_n, n_ = tanhf(now[2] + r * remembered);
        state = inside ? (1.f - z) * n_ + z * state : 0.f;
        const float4 message = four_units(state, lane % S);
#pragma unroll
        for (int m = 0; m < MESSAGES; m++)
            if ((lane + 32 * m) / S < R && step + 1 < steps) send(to[m] + 4 * offset, message, to_barrier[m] + 8 * buffer);
        if (writes) {
            const long long at = (long long)step * B + row;
            c[(at + B) * U + u] = state;
            if (gates) {
                float *kept = gates + at * 4 * U + u;
                kept[0] = r, kept[U] = z, kept[2 * U] = n_, kept[3 * U] = remembered;
            }
        }
#endif
    }
    meet();  // no block may leave while others write to its shared memory
}
