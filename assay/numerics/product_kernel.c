/* Products of i16 operands (docs/arithmetic.md, A32), and of f32 operands quantised on the way (A31).
 *
 * Both operands are packed into panels: the integers of a tile's rows, in pairs of neighbouring contracted
 * numbers, so that one instruction multiplies and adds two i16 pairs in each i32 lane. What is summed in i32
 * is cut where it could overflow: by Cauchy and Schwarz a sum over a cut is at most the root of the product of both
 * rows' sums of squares there. Cuts are added in binary64, exactly, and rounded once.
 */

#include "lanes.h"
#include "operand.h"

/* A tile is HIGH rows of x, or some times STEP where x ends, by WIDE rows of y; its sums stay in registers, of which
 * there are 32 where lanes are 16 and on ARM, else 16. */
#if defined(__ARM_FEATURE_DOTPROD)
#define HIGH 8
#define STEP 8
#define WIDE 12
#define WORDS 12 /* of i32, in which a row's numbers of a grain are packed */
#else
#if LANES == 16
#define HIGH 12
#define STEP 4
#elif defined(__aarch64__)
#define HIGH 8
#define STEP 4
#else
#define HIGH 6
#define STEP 2
#endif
#define WIDE (2 * LANES)
#define WORDS GRAIN
#endif

#define GRAIN 8               /* pairs; a cut is some grains, of which one cannot overflow */
#define LIMIT 0x1p62          /* of a product of two sums of squares */
#define BLOCK_BYTES (1 << 18) /* of packed x, which stays in the second cache while y goes by */
#define GROUP_BYTES (1 << 19) /* of an operand, which stays there from the reading of its exponents to its packing */

/* A matrix, packed: pairs[panel][grain][pair][row], sums of squares[grain][panel][row], and what follows of its
 * rows[panel][row]. */
typedef struct {
    int64_t width, panels, grains;
    int32_t *pairs, *squares;
    double *factors;
    float *first, *second; /* scales */
    int32_t *exponents;
} packed;

static double factor(int32_t e) {
    union {
        int64_t bits;
        double value;
    } made = {((int64_t)(e < -125 ? -125 : e) - 13 + 1023) * (1LL << 52)};
    return e >= 129 ? NAN : made.value;
}

static int64_t bytes(int integers) { return integers ? sizeof(int16_t) : sizeof(float); }

INLINED int32_t number(const char *at, int64_t i, int integers, float first, float second) {
    return integers ? ((const int16_t *)at)[i] : quantised(((const float *)at)[i], first, second);
}

#if defined(__ARM_FEATURE_DOTPROD)
#include "product_int8.h"
#else
typedef int32_t few __attribute__((vector_size(16), aligned(4), may_alias));

/* a.low * b.low + a.high * b.high in each lane. */
static inline few paired(few a, few b) {
#if defined(__x86_64__)
    return (few)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* GRAIN pairs of the numbers of `width` rows from `at` on, of which there are `rows` with `count` numbers. */
INLINED void pack_grain(const matrix *m, const char *at, int integers, int64_t rows, int64_t count, int64_t width,
                        const float *first, const float *second, int32_t *out) {
    if (rows < width || count < 2 * GRAIN) { /* at an edge */
        memset(out, 0, GRAIN * width * sizeof *out);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < count; i++) {
                int32_t one = number(at, r * m->row_step + i * m->number_step, integers, first[r], second[r]);
                out[i / 2 * width + r] |= i % 2 ? one * 65536 : one & 0xffff;
            }
    } else if (m->row_step == 1) {
        for (int64_t i = 0; i < GRAIN; i++, out += width) {
            int64_t low = 2 * i * m->number_step, high = low + m->number_step;
            for (int64_t r = 0; r < width; r++)
                out[r] = (number(at, low + r, integers, first[r], second[r]) & 0xffff) |
                         number(at, high + r, integers, first[r], second[r]) * 65536;
        }
    } else {
        int16_t q[WIDE][2 * GRAIN];
        int64_t step = m->number_step;
        for (int64_t r = 0; r < width; r++) {
            int64_t from = r * m->row_step;
            if (step == 1)
                for (int i = 0; i < 2 * GRAIN; i++)
                    q[r][i] = (int16_t)number(at, from + i, integers, first[r], second[r]);
            else
                for (int i = 0; i < 2 * GRAIN; i++)
                    q[r][i] = (int16_t)number(at, from + i * step, integers, first[r], second[r]);
        }
        for (int64_t i = 0; i < GRAIN; i++, out += width)
            for (int64_t r = 0; r < width; r++) memcpy(out + r, q[r] + 2 * i, sizeof *out);
    }
}

INLINED void square(const int32_t *pairs, int64_t width, int32_t *squares) {
    for (int64_t next = 0; next < width; next += 4) {
        int64_t r = next + 4 <= width ? next : width - 4;
        few sum = {0};
        for (int i = 0; i < GRAIN; i++) {
            few v = *(const few *)(pairs + i * width + r);
            sum += paired(v, v);
        }
        *(few *)(squares + r) = sum;
    }
}

/* sums[r] = pairs of R rows of a panel of x by a panel of y. */
#define TILE(R)                                                                                                        \
    static void tile_##R(const int32_t *x, const int32_t *y, int64_t pairs, int32_t (*sums)[WIDE]) {                   \
        lanes s[R][2];                                                                                                 \
        _Pragma("GCC unroll 12") for (int r = 0; r < R; r++) s[r][0] = s[r][1] = (lanes){0};                           \
        for (int64_t p = 0; p < pairs; p++, x += HIGH, y += WIDE) {                                                    \
            __builtin_prefetch(x + 16 * HIGH);                                                                         \
            __builtin_prefetch(y + 8 * WIDE), __builtin_prefetch(y + 8 * WIDE + LANES);                                \
            lanes low = *(const unaligned_lanes *)y, high = *(const unaligned_lanes *)(y + LANES);                     \
            _Pragma("GCC unroll 12") for (int r = 0; r < R; r++) {                                                     \
                lanes one = (lanes){0} + x[r];                                                                         \
                s[r][0] = dot(s[r][0], one, low);                                                                      \
                s[r][1] = dot(s[r][1], one, high);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 12") for (int r = 0; r < R; r++) {                                                         \
            *(unaligned_lanes *)sums[r] = s[r][0];                                                                     \
            *(unaligned_lanes *)(sums[r] + LANES) = s[r][1];                                                           \
        }                                                                                                              \
    }

#if HIGH == 12
TILE(12)
#endif
#if HIGH >= 8
TILE(8)
#else
TILE(6)
TILE(2)
#endif
TILE(4)

typedef void tile(const int32_t *, const int32_t *, int64_t, int32_t (*)[WIDE]);
#if HIGH == 12
static tile *const TILES[] = {tile_4, tile_8, tile_12};
#elif HIGH == 8
static tile *const TILES[] = {tile_4, tile_8};
#else
static tile *const TILES[] = {tile_2, tile_4, tile_6};
#endif

/* Sums of a panel of x by one of y, in `sums`; where there are several cuts in `total`, and then it says 1. */
static int cell_sums(const int32_t *a, const int32_t *b, int64_t rows, const int64_t *cuts, int64_t cut_count,
                     int32_t (*sums)[WIDE], double (*total)[WIDE]) {
    for (int64_t c = 0; c < cut_count; c++) {
        int64_t from = cuts[c] * GRAIN, pairs = cuts[c + 1] * GRAIN - from;
        TILES[(rows - 1) / STEP](a + from * HIGH, b + from * WIDE, pairs, sums);
        for (int64_t r = 0; r < rows && cut_count > 1; r++)
            for (int64_t l = 0; l < WIDE; l++) total[r][l] = c ? total[r][l] + sums[r][l] : sums[r][l];
    }
    return cut_count > 1;
}

#if LANES == 16
#include "pack_avx512.h"
#endif
#endif

/* Panels from `start` to `stop`, in the order in which the numbers lie. */
INLINED void pack_as(const matrix *m, const packed *p, int64_t start, int64_t stop, int64_t width, int integers,
                     int own) {
    int by_grain = m->number_step != 1;
    for (int64_t i = 0; i < (stop - start) * p->grains; i++) {
        int64_t panel = start + (by_grain ? i % (stop - start) : i / p->grains), row = panel * width;
        int64_t grain = by_grain ? i / (stop - start) : i % p->grains, k = grain * 2 * GRAIN;
        int64_t rows = m->rows - row < width ? m->rows - row : width;
        int64_t count = m->length - k < 2 * GRAIN ? m->length - k : 2 * GRAIN;
        int32_t *out = p->pairs + (panel * p->grains + grain) * WORDS * width;
        const char *at = m->at + bytes(integers) * (row * m->row_step + k * m->number_step);
        int32_t *squares = p->squares + (grain * p->panels + panel) * width;
#if LANES == 16
        if (!integers && (m->row_step == 1 || m->number_step == 1)) {
            pack_lanes((const float *)at, m->row_step, m->number_step, rows, count, width, own, p->first + row,
                       p->second + row, out, squares);
            continue;
        }
#endif
        pack_grain(m, at, integers, rows, count, width, p->first + row, p->second + row, out);
        square(out, width, squares);
    }
}

/* Panels from `start` to `stop`, with what their rows are scaled by. */
INLINED void pack(const matrix *m, const packed *p, int64_t start, int64_t stop, int64_t width) {
    int64_t most = GROUP_BYTES / (width * m->length * sizeof(float)), group = most > 1 ? most : 1;
    if (m->exponents) group = stop - start;
    for (int64_t end; start < stop; start = end) {
        end = start + group < stop ? start + group : stop;
        int64_t row = start * width, rows = end * width < m->rows ? end * width : m->rows;
        exponents(m, row, rows, p->exponents + row);
        for (; row < rows; row++) {
            scales(p->exponents[row], p->first + row, p->second + row);
            p->factors[row] = factor(p->exponents[row]);
        }
        for (; row < end * width; row++) p->first[row] = p->second[row] = p->factors[row] = 0; /* where none are */
        if (m->integers)
            pack_as(m, p, start, end, width, 1, 0);
        else if (m->exponents)
            pack_as(m, p, start, end, width, 0, 0);
        else
            pack_as(m, p, start, end, width, 0, 1);
    }
}

/* Adds the squares of grain g to each row's sum; returns the largest. */
static int64_t added(const packed *p, int64_t g, int64_t *sums) {
    int64_t most = 0, rows = p->panels * p->width;
    const int32_t *squares = p->squares + g * rows;
    for (int64_t r = 0; r < rows; r++) {
        sums[r] += squares[r];
        most = sums[r] > most ? sums[r] : most;
    }
    return most;
}

/* Where sums in i32 must end: cuts[i] is the first grain of the i-th; returns how many there are. `sums` are zeros. */
static int64_t cut(const packed *x, const packed *y, int64_t *cuts, int64_t *sums) {
    int64_t x_size = x->panels * x->width, y_size = y->panels * y->width, count = 0;
    cuts[count++] = 0;
    for (int64_t g = 0; g < x->grains; g++) {
        double x_most = added(x, g, sums), y_most = added(y, g, sums + x_size);
        if (g == cuts[count - 1] || x_most * y_most < LIMIT) continue;
        cuts[count++] = g;
        memset(sums, 0, (x_size + y_size) * sizeof *sums);
        added(x, g, sums), added(y, g, sums + x_size);
    }
    cuts[count] = x->grains;
    return count;
}

/* out = one panel of x by one of y; what several cuts sum to is kept in `total`. */
static void cell(const packed *x, int64_t i, int64_t x_rows, const packed *y, int64_t j, int64_t y_rows,
                 const int64_t *cuts, int64_t cut_count, float *out) {
    int64_t row = i * HIGH, column = j * WIDE, rows = x_rows - row, columns = y_rows - column;
    const int32_t *a = x->pairs + i * x->grains * WORDS * HIGH, *b = y->pairs + j * y->grains * WORDS * WIDE;
    int32_t sums[HIGH][WIDE];
    double total[HIGH][WIDE];
    const double *by = y->factors + column;
    rows = rows < HIGH ? rows : HIGH;
    columns = columns < WIDE ? columns : WIDE;
    for (int64_t r = 0; r < rows; r++) /* what is written in the end, by then in the first cache */
        for (int64_t l = 0; l < columns; l += 16) __builtin_prefetch(out + (row + r) * y_rows + column + l, 1);
    int wide = cell_sums(a, b, rows, cuts, cut_count, sums, total);
    for (int64_t r = 0; r < rows; r++) {
        float made[WIDE];
        double factor = x->factors[row + r];
        if (wide)
            for (int64_t l = 0; l < WIDE; l++) made[l] = (float)(total[r][l] * factor * by[l]);
        else
            for (int64_t l = 0; l < WIDE; l++) made[l] = (float)(sums[r][l] * factor * by[l]);
        float *to = out + (row + r) * y_rows + column;
        if (columns == WIDE)
            memcpy(to, made, sizeof made);
        else
            memcpy(to, made, columns * sizeof *made);
    }
}

/* Its pairs are NULL where there is no memory. */
static packed room(const matrix *m, int64_t width) {
    int64_t panels = (m->rows + width - 1) / width, grains = (m->length + 2 * GRAIN - 1) / (2 * GRAIN);
    int64_t rows = panels * width, pairs = rows * grains * WORDS, squares = rows * grains;
    int64_t size = (pairs + squares) * sizeof(int32_t) + rows * (sizeof(double) + 3 * sizeof(float));
    int32_t *from = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!from) return (packed){0};
    double *factors = (double *)(from + pairs + squares); /* the width is even */
    float *first = (float *)(factors + rows);
    return (packed){width, panels, grains, from, from + pairs, factors, first, first + rows,
                    (int32_t *)(first + 2 * rows)};
}

/* out[x row][y row] of one x and one y, packed into a and b; `cuts` and `sums` are scratch. */
static void multiply(const matrix *x, const packed *a, const matrix *y, const packed *b, int64_t *cuts, int64_t *sums,
                     float *out, int threads) {
    int64_t most = BLOCK_BYTES / (a->grains * WORDS * HIGH * sizeof *a->pairs), cut_count = 0;
    int64_t blocks = most > 1 ? (a->panels + most - 1) / most : a->panels;
    int64_t block = (a->panels + blocks - 1) / blocks; /* alike, so that threads have as much to do */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int t = 0; t < threads; t++) {
            pack(x, a, a->panels * t / threads, a->panels * (t + 1) / threads, HIGH);
            pack(y, b, b->panels * t / threads, b->panels * (t + 1) / threads, WIDE);
        }
#pragma omp single
        cut_count = cut(a, b, cuts, sums);
#pragma omp for schedule(dynamic, 4)
        for (int64_t task = 0; task < blocks * b->panels; task++) {
            int64_t start = task / b->panels * block, stop = start + block < a->panels ? start + block : a->panels;
            for (int64_t i = start; i < stop; i++)
                cell(a, i, x->rows, b, task % b->panels, y->rows, cuts, cut_count, out);
        }
    }
}

/* The product of one x and one y; 0 where there is no memory. */
static int solve(const matrix *x, const matrix *y, float *out, int threads) {
    packed a = room(x, HIGH), b = room(y, WIDE);
    int64_t *cuts = malloc((a.grains + 1) * sizeof *cuts);
    int64_t *sums = calloc(a.panels * HIGH + b.panels * WIDE, sizeof *sums);
    int fits = a.pairs && b.pairs && cuts && sums;
    if (fits) multiply(x, &a, y, &b, cuts, sums, out, threads);
    free(a.pairs), free(b.pairs), free(cuts), free(sums);
    return fits;
}
