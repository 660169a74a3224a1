/* What the engine computes, for one instruction set (TARGET) and first for float, then for double.
 *
 * All of it rests on one operation, out += s A, where the rows of A are padded to full registers:
 *
 *     several rows s at once   tiles of 4 rows by a few registers: each number read from A is used 4 times
 *     one row s                only the rows of A whose factor is not 0 are read: h is sparse, and reading costs most
 */

#ifndef real
#define real float
#define NAME(name) VERSION(name##_f32)
#include "arithmetic.h"
#undef real
#undef NAME
#ifndef ONLY_STREAMS
#define real double
#define NAME(name) VERSION(name##_f64)
#include "arithmetic.h"
#undef real
#undef NAME
#endif
#undef TARGET
#undef STRIP
#undef TILE
#undef VERSION
#else

#ifdef __GNUC__
typedef real NAME(vector) __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 26")
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET
#else
typedef real NAME(vector);
#define UNROLL
#define INLINE static __inline
#endif
#define vector NAME(vector)
#define LANES ((int64_t)(sizeof(vector) / sizeof(real)))

/* The first n numbers at p, at most a register full, then zeros. */
INLINE vector NAME(load)(const real *p, int64_t n) {
    vector v = {0};
    if (n >= LANES) return *(const vector *)p;
    if (n > 0) memcpy(&v, p, n * sizeof(real));
    return v;
}

INLINE void NAME(store)(real *p, int64_t n, vector v) {
    if (n >= LANES)
        *(vector *)p = v;
    else if (n > 0)
        memcpy(p, &v, n * sizeof(real));
}

/* out += s A for `rows` rows and `width` registers of columns, of which only the last may be partly filled; s[r, j] lies
 * at r s_row + j s_column. */
INLINE void NAME(tile)(const int rows, const int width, real *out, int64_t out_step, int64_t columns, const real *s,
                       int64_t s_row, int64_t s_column, const real *A, int64_t A_step, int64_t depth) {
    vector sum[4][TILE];
    const int last = width - 1;
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < last; v++) sum[r][v] = *(const vector *)(out + r * out_step + v * LANES);
        sum[r][last] = NAME(load)(out + r * out_step + last * LANES, columns - last * LANES);
    }
    for (int64_t j = 0; j < depth; j++) {
        UNROLL for (int v = 0; v < width; v++) {
            const vector a = *(const vector *)(A + j * A_step + v * LANES);
            UNROLL for (int r = 0; r < rows; r++) sum[r][v] += s[r * s_row + j * s_column] * a;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < last; v++) *(vector *)(out + r * out_step + v * LANES) = sum[r][v];
        NAME(store)(out + r * out_step + last * LANES, columns - last * LANES, sum[r][last]);
    }
}

/* out += s A for `rows` rows. A lies in panels of A_step columns, which tiles share out evenly. */
INLINE void NAME(tiles)(const int rows, real *out, int64_t out_step, int64_t columns, const real *s, int64_t s_row,
                        int64_t s_column, const real *A, int64_t A_step, int64_t depth) {
    for (; columns > 0; columns -= A_step, out += A_step, A += A_step * depth) {
        const int64_t registers = ((columns < A_step ? columns : A_step) + LANES - 1) / LANES;
        const int64_t n = (registers + TILE - 1) / TILE;
        for (int64_t i = 0; i < n; i++) {
            const int64_t first = registers * i / n, at = first * LANES;
#define CASE(width) \
    case width: \
        NAME(tile)(rows, width, out + at, out_step, columns - at, s, s_row, s_column, A + at, A_step, depth); \
        break;
            switch (registers * (i + 1) / n - first) {
                CASE(1) CASE(2)
#if TILE > 2
                CASE(3) CASE(4) CASE(5) CASE(6)
#endif
            }
#undef CASE
        }
    }
}

/* out += the `count` rows of A that are listed, times their factors in s, in `width` registers of columns as above. */
INLINE void NAME(strip)(const int width, real *out, int64_t columns, const real *s, const int32_t *active,
                        int64_t count, const real *A, int64_t A_step) {
    vector sum[STRIP];
    const int last = width - 1;
    UNROLL for (int v = 0; v < last; v++) sum[v] = *(const vector *)(out + v * LANES);
    sum[last] = NAME(load)(out + last * LANES, columns - last * LANES);
    for (int64_t i = 0; i < count; i++) {
        const real *row = A + active[i] * A_step, factor = s[active[i]];
        UNROLL for (int v = 0; v < width; v++) sum[v] += factor * *(const vector *)(row + v * LANES);
    }
    UNROLL for (int v = 0; v < last; v++) *(vector *)(out + v * LANES) = sum[v];
    NAME(store)(out + last * LANES, columns - last * LANES, sum[last]);
}

/* out += s A for one row and one panel: strips as wide as there are registers, evenly shared out. */
INLINE void NAME(panel)(real *out, int64_t columns, const real *s, const int32_t *active, int64_t count, const real *A,
                        int64_t A_step) {
    int64_t registers = (columns + LANES - 1) / LANES;
    for (int64_t strips = (registers + STRIP - 1) / STRIP; strips > 0; strips--) {
        const int64_t width = (registers + strips - 1) / strips;
#define CASE(width) case width: NAME(strip)(width, out, columns, s, active, count, A, A_step); break;
        switch (width) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13)
#if STRIP > 13
            CASE(14) CASE(15) CASE(16) CASE(17) CASE(18) CASE(19) CASE(20) CASE(21) CASE(22) CASE(23) CASE(24) CASE(25)
            CASE(26)
#endif
        }
#undef CASE
        registers -= width, columns -= width * LANES, out += width * LANES, A += width * LANES;
    }
}

/* out += s A for one row, given where s (depth) is not zero. */
static TARGET void NAME(add_active)(real *out, int64_t columns, const real *s, const int32_t *active, int64_t count,
                                    const real *A, int64_t A_step, int64_t depth) {
    for (; columns > 0; columns -= A_step, out += A_step, A += A_step * depth)
        NAME(panel)(out, columns < A_step ? columns : A_step, s, active, count, A, A_step);
}

/* Where s is not zero, and in how many places. */
static TARGET int64_t NAME(nonzero)(const real *s, int64_t n, int32_t *active) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        active[count] = (int32_t)i;
        count += s[i] != 0;
    }
    return count;
}

/* out += s A for any number of rows. `active` is room for as many numbers as A has rows, its depth. */
static TARGET void NAME(add_rows)(int64_t rows, real *out, int64_t out_step, int64_t columns, const real *s,
                                  int64_t s_step, const real *A, int64_t A_step, int64_t depth, int32_t *active) {
    for (; rows >= 4; rows -= 4, out += 4 * out_step, s += 4 * s_step)
        NAME(tiles)(4, out, out_step, columns, s, s_step, 1, A, A_step, depth);
    for (; rows > 0; rows--, out += out_step, s += s_step)
        NAME(add_active)(out, columns, s, active, NAME(nonzero)(s, depth, active), A, A_step, depth);
}

/* out (M, columns) += s^T g, a sum over the rows of s (depth, M) and g (depth, columns). */
static TARGET void NAME(add_outer)(int64_t M, real *out, int64_t out_step, int64_t columns, const real *s,
                                   int64_t s_step, const real *g, int64_t g_step, int64_t depth) {
    for (; M >= 4; M -= 4, out += 4 * out_step, s += 4)
        NAME(tiles)(4, out, out_step, columns, s, 1, s_step, g, g_step, depth);
    for (; M > 0; M--, out += out_step, s++) NAME(tiles)(1, out, out_step, columns, s, 1, s_step, g, g_step, depth);
}

#ifndef ONLY_STREAMS
#include "recurrence.h"
#endif
#include "sound.h"

#undef vector
#undef UNROLL
#undef INLINE
#undef LANES
#endif
