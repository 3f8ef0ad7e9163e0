/* What both kernels of products share: operands, the exponents of their rows (docs/arithmetic.md, A30), and batches. */

#include <stdint.h>
#include <string.h>

#define ROWS_AHEAD 16 /* that are fetched: where columns are read, processors do not see what comes next */

/* Compiled for each width and each kind of numbers that it is called with. */
#define INLINED static inline __attribute__((always_inline))

/* One matrix [rows, length] of an operand: i16, which are |q| <= 8192, or f32. */
typedef struct {
    const char *at;
    int integers;
    int64_t rows, length, row_step, number_step;
    const int32_t *exponents; /* of rows; NULL for those that f32 have */
} matrix;

typedef int32_t bits __attribute__((may_alias));

/* The exponents of rows from `from` to `to`, in e[0] and after. */
static void exponents(const matrix *m, int64_t from, int64_t to, int32_t *e) {
    int64_t rows = to - from, row_step = m->row_step, number_step = m->number_step;
    const bits *at = (const bits *)m->at + from * row_step;
    if (m->exponents) {
        memcpy(e, m->exponents + from, rows * sizeof *e);
        return;
    }
    memset(e, 0, rows * sizeof *e);
    if (number_step == 1) {
        for (int64_t r = 0; r < rows; r++, at += row_step) {
            int32_t most = 0;
            for (int64_t i = 0; i < m->length; i++) {
                int32_t size = at[i] & 0x7fffffff;
                most = size > most ? size : most;
            }
            e[r] = most;
        }
    } else {
        for (int64_t i = 0; i < m->length; i++, at += number_step) {
            for (int64_t r = 0; r < rows; r += 16) __builtin_prefetch(at + ROWS_AHEAD * number_step + r * row_step);
            for (int64_t r = 0; r < rows; r++) {
                int32_t size = at[r * row_step] & 0x7fffffff;
                e[r] = size > e[r] ? size : e[r];
            }
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        int32_t field = e[r] >> 23;
        e[r] = field == 255 ? 129 : (field ? field : 1) - 126;
    }
}

/* Where batch `index` begins, in a tensor with these strides. */
static int64_t place(int64_t index, int64_t count, const int64_t *sizes, const int64_t *strides) {
    int64_t at = 0;
    for (int64_t i = count - 1; i >= 0; index /= sizes[i--]) at += index % sizes[i] * strides[i];
    return at;
}

/* The product of one x and one y, by the kernel that includes this; 0 where there is no memory. */
static int solve(const matrix *x, const matrix *y, float *out, int threads);

/* The arguments of `quantised_product`. */
typedef struct {
    const char *x, *y;
    const int64_t *x_strides, *y_strides;
    const int32_t *ex, *ey;
    const int64_t *sizes;
    int64_t dims;
    int integers;
    float *out;
} batch;

static int solve_entry(const batch *all, int64_t b, int threads) {
    const int64_t *x_step = all->x_strides + all->dims, *y_step = all->y_strides + all->dims, dims = all->dims;
    int64_t m = all->sizes[dims], n = all->sizes[dims + 1], k = all->sizes[dims + 2], size = all->integers ? 2 : 4;
    const char *x_at = all->x + size * place(b, dims, all->sizes, all->x_strides);
    const char *y_at = all->y + size * place(b, dims, all->sizes, all->y_strides);
    matrix x = {x_at, all->integers, m, k, x_step[0], x_step[1], all->ex ? all->ex + b * m : NULL};
    matrix y = {y_at, all->integers, n, k, y_step[0], y_step[1], all->ey ? all->ey + b * n : NULL};
    return solve(&x, &y, all->out + b * m * n, threads);
}

/* f32[b.., M, N] from [b.., M, K] and [b.., N, K] with these strides, and contiguous exponents of their rows, NULL for
 * those that f32 have; `integers` says what both hold, and `sizes` are those of b.., M, N, K. Returns 0 where there is
 * no memory, and `out` is then unfinished.
 *
 * Batches are dealt out to threads; a single one is shared, outside of any parallel region: within one, even of one
 * thread, the runtime makes new threads for each product instead of waking those that it has. */
int quantised_product(const char *x, const int64_t *x_strides, const int32_t *ex, const char *y,
                      const int64_t *y_strides, const int32_t *ey, int integers, float *out, const int64_t *sizes,
                      int64_t dims, int threads) {
    batch all = {x, y, x_strides, y_strides, ex, ey, sizes, dims, integers, out};
    int64_t count = 1;
    for (int64_t i = 0; i < dims; i++) count *= sizes[i];
    if (count == 1) return solve_entry(&all, 0, threads);
    int fits = 1;
#pragma omp parallel for num_threads(threads) if (threads > 1) reduction(&& : fits)
    for (int64_t b = 0; b < count; b++) fits = solve_entry(&all, b, 1) && fits;
    return fits;
}
