/* Planes quantised with zeros around them (docs/arithmetic.md, A31), and products of rows of overlapping views of
 * such i16 tensors (A32), without copying the views.
 *
 * `x` is the view that is read where it lies, `w` the one that is packed: pairs of neighbouring contracted
 * numbers, so that one instruction multiplies and adds two i16 pairs in each i32 lane. What is summed in i32
 * is cut where a row of w could overflow it: |x| <= 8192 and the |w| of a cut add up to less than 2^18. Cuts
 * are added in binary64, exactly, and rounded once.
 */

#include "lanes.h"

typedef int32_t pair __attribute__((aligned(2), may_alias));

#define MOST_PAIRS 64 /* in a cut: what its pairs name stays in the first cache */
#define LIMIT ((1 << 18) - 1)
#define ROWS 48 /* in a block: a multiple of the tiles' rows */

#define MOST_DIMS 16

typedef struct {
    int64_t count;
    const int64_t *sizes, *strides;
} dims;

static int64_t total(dims d) {
    int64_t product = 1;
    for (int64_t i = 0; i < d.count; i++) product *= d.sizes[i];
    return product;
}

/* Where elements start, start + 1, ... of the flattened dimensions lie. */
static void places(dims d, int64_t start, int64_t count, int64_t *out) {
    int64_t digits[MOST_DIMS], at = 0;
    for (int64_t i = d.count - 1; i >= 0; i--) {
        digits[i] = start % d.sizes[i];
        start /= d.sizes[i];
        at += digits[i] * d.strides[i];
    }
    for (int64_t n = 0; n < count; n++) {
        out[n] = at;
        for (int64_t i = d.count - 1; i >= 0; i--) {
            at += d.strides[i];
            if (++digits[i] < d.sizes[i]) break;
            at -= digits[i] * d.strides[i];
            digits[i] = 0;
        }
    }
}

/* The packed operand [pairs][padded][2]: pairs divide lines of `length` contracted numbers, whose places are
 * given; an odd one out has a zero beside it. */
static void pack(const int16_t *w, const int64_t *rows, int64_t count, int64_t padded, const int64_t *numbers,
                 int64_t lines, int64_t length, int16_t *out) {
    int dense = 1;
    for (int64_t r = 0; r < count; r++) dense &= rows[r] == rows[0] + r;
    for (int64_t line = 0; line < lines; line++, numbers += length)
        for (int64_t i = 0; i < length; i += 2, out += 2 * padded) {
            const int16_t *a = w + numbers[i], *b = i + 1 < length ? w + numbers[i + 1] : NULL;
            if (dense && b) {
                a += rows[0], b += rows[0];
                for (int64_t r = 0; r < count; r++) out[2 * r] = a[r], out[2 * r + 1] = b[r];
            } else
                for (int64_t r = 0; r < count; r++) out[2 * r] = a[rows[r]], out[2 * r + 1] = b ? b[rows[r]] : 0;
            memset(out + 2 * count, 0, 4 * (padded - count));
        }
}

/* Where sums in i32 must end: cuts[i] is the first pair of the i-th; returns how many there are. */
static int64_t cut(const int16_t *packed, int64_t padded, int64_t pairs, int32_t *sums, int64_t *cuts) {
    int64_t count = 0;
    memset(sums, 0, padded * sizeof *sums);
    for (int64_t p = 0; p < pairs; p++, packed += 2 * padded) {
        int32_t most = 0;
        for (int64_t r = 0; r < padded; r++) {
            sums[r] += abs(packed[2 * r]) + abs(packed[2 * r + 1]);
            most = sums[r] > most ? sums[r] : most;
        }
        if (count && most <= LIMIT && p - cuts[count - 1] < MOST_PAIRS) continue;
        cuts[count++] = p;
        for (int64_t r = 0; r < padded; r++) sums[r] = abs(packed[2 * r]) + abs(packed[2 * r + 1]);
    }
    cuts[count] = pairs;
    return count;
}

/* sums[r][v] += pairs of `rows` rows by `vectors` vectors; places are in bytes. */
#define TILE(R, N)                                                                                                \
    static void tile_##R##_##N(const char *a, const int64_t *rows, const int64_t *a_pairs, const char *b,         \
                               const int64_t *b_pairs, int64_t pairs, double *sums, int64_t width) {              \
        lanes s[R][N];                                                                                            \
        _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)                                                       \
            _Pragma("GCC unroll 4") for (int v = 0; v < N; v++) s[r][v] = (lanes){0};                             \
        for (int64_t p = 0; p < pairs; p++) {                                                                     \
            const char *from = a + a_pairs[p], *by = b + b_pairs[p];                                              \
            lanes y[N];                                                                                           \
            _Pragma("GCC unroll 4") for (int v = 0; v < N; v++) y[v] = ((const unaligned_lanes *)by)[v];          \
            _Pragma("GCC unroll 8") for (int r = 0; r < R; r++) {                                                 \
                lanes x = (lanes){0} + *(const pair *)(from + rows[r]);                                           \
                _Pragma("GCC unroll 4") for (int v = 0; v < N; v++) s[r][v] = dot(s[r][v], x, y[v]);              \
            }                                                                                                     \
        }                                                                                                         \
        for (int r = 0; r < R; r++, sums += width)                                                                \
            for (int v = 0; v < N; v++)                                                                           \
                for (int l = 0; l < LANES; l++) sums[v * LANES + l] += s[r][v][l];                                \
    }
TILE(8, 1)
#if LANES == 16 /* so there are 32 registers */
TILE(8, 2)
TILE(8, 3)
TILE(6, 4)
#else /* 16 */
TILE(6, 2)
#endif
typedef void tile(const char *, const int64_t *, const int64_t *, const char *, const int64_t *, int64_t, double *,
                  int64_t);
#if LANES == 16
static tile *const TILES[] = {tile_8_1, tile_8_2, tile_8_3, tile_6_4};
static const int TILE_ROWS[] = {8, 8, 8, 6};
#else
static tile *const TILES[] = {tile_8_1, tile_6_2};
static const int TILE_ROWS[] = {8, 6};
#endif
#define MOST_VECTORS ((int64_t)(sizeof TILES / sizeof *TILES)) /* in a tile */

typedef struct {
    const int16_t *x, *packed;
    int64_t x_count;        /* elements of x's tensor */
    int64_t step;           /* from a number of x to its partner; 0 where pairs lie in x as they are */
    int64_t pairs, padded;  /* of w's rows */
    const int64_t *first;   /* place of each pair's first number in x */
    const int64_t *cuts;
    int64_t cut_count;
    int x_is_vectors;
    const double *row_factors, *column_factors;
    float *out;
    int64_t row_step, column_step; /* in out */
} problem;

typedef struct {
    int64_t start, count; /* vectors */
} group;

/* What one thread works with. */
typedef struct {
    double *sums;
    int32_t *pairs;
    int64_t room;
} scratch;

static void least_and_most(const int64_t *numbers, int64_t count, int64_t *least, int64_t *most) {
    *least = *most = numbers[0];
    for (int64_t i = 1; i < count; i++) {
        *least = numbers[i] < *least ? numbers[i] : *least;
        *most = numbers[i] > *most ? numbers[i] : *most;
    }
}

/* Every number from `least` to `most` beside its partner. Returns where x's place 0 would be, NULL where there is
 * no memory. */
static const char *beside(const problem *t, int64_t least, int64_t most, scratch *own) {
    int64_t count = most - least + 1, whole = t->x_count - t->step - least;
    if (count > own->room) {
        free(own->pairs);
        own->pairs = malloc(count * sizeof *own->pairs);
        own->room = own->pairs ? count : 0;
        if (!own->pairs) return NULL;
    }
    whole = whole < 0 ? 0 : whole < count ? whole : count;
    int16_t *made = (int16_t *)own->pairs;
    const int16_t *a = t->x + least, *b = a + t->step;
    for (int64_t i = 0; i < whole; i++) made[2 * i] = a[i], made[2 * i + 1] = b[i];
    for (int64_t i = whole; i < count; i++) made[2 * i] = a[i], made[2 * i + 1] = 0;
    return (const char *)own->pairs - 4 * least;
}

/* A block of rows by some groups of vectors. `x_rows` are the places in x that the block reads.
 * Returns 0 where there is no memory. */
static int block(const problem *t, const int64_t *x_rows, int64_t x_count, int64_t row, int64_t rows, const group *groups,
                 int64_t group_count, int64_t columns, scratch *own) {
    int64_t unit = t->step ? 4 : 2, width = 0, base = groups[0].start, least, most, from, to;
    int64_t at[ROWS], x_pairs[MOST_PAIRS], w_pairs[MOST_PAIRS];
    for (int64_t g = 0; g < group_count; g++) width += groups[g].count * LANES;
    memset(own->sums, 0, ROWS * width * sizeof *own->sums);
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t n = r < rows ? r : rows - 1;
        at[r] = t->x_is_vectors ? 4 * (row + n) : unit * x_rows[n];
    }
    least_and_most(x_rows, x_count, &least, &most);
    for (int64_t c = 0; c < t->cut_count; c++) {
        int64_t p = t->cuts[c], pairs = t->cuts[c + 1] - p;
        const char *x = (const char *)t->x;
        if (t->step) {
            least_and_most(t->first + p, pairs, &from, &to);
            x = beside(t, least + from, most + to, own);
            if (!x) return 0;
        }
        for (int64_t i = 0; i < pairs; i++) {
            x_pairs[i] = unit * t->first[p + i];
            w_pairs[i] = 4 * t->padded * (p + i);
        }
        for (int64_t g = 0; g < group_count; g++) {
            int64_t count = groups[g].count, height = TILE_ROWS[count - 1];
            double *sums = own->sums + (groups[g].start - base) * LANES;
            const char *y = t->x_is_vectors ? x + 4 * x_rows[(groups[g].start - base) * LANES]
                                            : (const char *)t->packed + 4 * LANES * groups[g].start;
            for (int64_t r = 0; r < rows; r += height)
                if (t->x_is_vectors)
                    TILES[count - 1]((const char *)t->packed, at + r, w_pairs, y, x_pairs, pairs, sums + r * width, width);
                else
                    TILES[count - 1](x, at + r, x_pairs, y, w_pairs, pairs, sums + r * width, width);
        }
    }
    int64_t start = base * LANES, stop = start + width < columns ? start + width : columns;
    for (int64_t r = 0; r < rows; r++) {
        const double *sums = own->sums + r * width;
        float *out = t->out + (row + r) * t->row_step;
        if (t->column_step == 1)
            for (int64_t i = start; i < stop; i++)
                out[i] = (float)(sums[i - start] * t->row_factors[row + r] * t->column_factors[i]);
        else
            for (int64_t i = start; i < stop; i++)
                out[i * t->column_step] = (float)(sums[i - start] * t->row_factors[row + r] * t->column_factors[i]);
    }
    return 1;
}

/* Neighbouring vectors, as many together as a tile takes; `rows` are the vectors' places, NULL where all are neighbours. */
static int64_t grouped(const int64_t *rows, int64_t vectors, group *groups) {
    int64_t count = 0;
    for (int64_t v = 0; v < vectors; v++) {
        int follows = count && groups[count - 1].count < MOST_VECTORS &&
                      (!rows || rows[v * LANES] == rows[(v - 1) * LANES] + LANES);
        if (follows)
            groups[count - 1].count++;
        else
            groups[count++] = (group){v, 1};
    }
    return count;
}

static int in_vectors(const int64_t *rows, int64_t count) {
    int neighbours = count % LANES == 0;
    for (int64_t r = 0; r < count; r++) neighbours &= rows[r] == rows[r - r % LANES] + r % LANES;
    return neighbours;
}

/* Returns 0 where there is no memory. */
static int solve(problem *t, const int64_t *x_rows, int64_t x_count, int64_t w_count, group *groups, int threads) {
    int64_t rows = t->x_is_vectors ? w_count : x_count, columns = t->x_is_vectors ? x_count : w_count;
    int64_t vectors = (columns + LANES - 1) / LANES;
    int64_t group_count = grouped(t->x_is_vectors ? x_rows : NULL, vectors, groups);
    int64_t blocks = (rows + ROWS - 1) / ROWS, parts = (threads + blocks - 1) / blocks;
    int fits = 1;
    parts = parts > group_count ? group_count : parts;
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(&& : fits)
    {
        scratch own = {malloc(ROWS * vectors * LANES * sizeof(double)), NULL, 0};
        fits = own.sums != NULL;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < blocks * parts; task++) {
            int64_t row = task / parts * ROWS, count = rows - row < ROWS ? rows - row : ROWS;
            int64_t part = task % parts, start = group_count * part / parts;
            int64_t stop = group_count * (part + 1) / parts;
            int64_t column = groups[start].start * LANES;
            int64_t end = stop < group_count ? groups[stop].start * LANES : columns;
            fits = fits && block(t, x_rows + (t->x_is_vectors ? column : row), t->x_is_vectors ? end - column : count, row,
                                 count, groups + start, stop - start, columns, &own);
        }
        free(own.sums);
        free(own.pairs);
    }
    return fits;
}

/* The dimensions that start at *from, which is moved behind them. */
static dims taken(const int64_t **from) {
    dims d = {**from, *from + 1, *from + 1 + **from};
    *from += 1 + 2 * d.count;
    return d;
}

/* out[b][x row][w row] of views with (count, sizes, strides) for batch, rows and contracted dimensions each, one
 * after the other; x_step and w_step are the rows' steps in out. The contracted dimensions are as long in both.
 * Returns 0 where there is no memory, and `out` is then unfinished. */
int windowed_product(const int16_t *x, int64_t x_elements, const int64_t *x_dims, const int16_t *w, const int64_t *w_dims,
                     const double *x_factors, const double *w_factors, float *out, int64_t x_step, int64_t w_step,
                     int threads) {
    dims x_batch = taken(&x_dims), x_rows = taken(&x_dims), x_inner = taken(&x_dims);
    dims w_batch = taken(&w_dims), w_rows = taken(&w_dims), w_inner = taken(&w_dims);
    int64_t batch = total(x_batch), rows = total(x_rows), w_count = total(w_rows), inner = total(x_inner);
    int64_t length = x_inner.sizes[x_inner.count - 1], step = x_inner.strides[x_inner.count - 1];
    int64_t lines = inner / length, per = (length + 1) / 2, pairs = lines * per;
    int64_t padded = (w_count + LANES - 1) / LANES * LANES;
    int64_t *numbers = malloc((2 * batch + rows + w_count + 2 * inner + 2 * pairs + 1) * sizeof *numbers);
    int16_t *packed = malloc(4 * padded * pairs);
    int32_t *sums = malloc(padded * sizeof *sums);
    group *groups = malloc(((rows > padded ? rows : padded) / LANES + 1) * sizeof *groups);
    int fits = numbers && packed && sums && groups;
    if (fits) {
        int64_t *x_at = numbers, *w_at = x_at + batch, *x_lines = w_at + batch, *w_lines = x_lines + rows;
        int64_t *x_numbers = w_lines + w_count, *w_numbers = x_numbers + inner, *first = w_numbers + inner;
        int64_t *cuts = first + pairs;
        places(x_batch, 0, batch, x_at), places(w_batch, 0, batch, w_at);
        places(x_rows, 0, rows, x_lines), places(w_rows, 0, w_count, w_lines);
        places(x_inner, 0, inner, x_numbers), places(w_inner, 0, inner, w_numbers);
        for (int64_t p = 0; p < pairs; p++) first[p] = x_numbers[p / per * length + p % per * 2];
        problem t = {.packed = packed, .step = step == 1 && length % 2 == 0 ? 0 : step, .pairs = pairs,
                     .padded = padded, .first = first, .cuts = cuts};
        t.x_is_vectors = t.step && in_vectors(x_lines, rows);
        t.row_step = t.x_is_vectors ? w_step : x_step;
        t.column_step = t.x_is_vectors ? x_step : w_step;
        for (int64_t b = 0; b < batch && fits; b++) {
            pack(w + w_at[b], w_lines, w_count, padded, w_numbers, lines, length, packed);
            t.cut_count = cut(packed, padded, pairs, sums, cuts);
            t.x = x + x_at[b];
            t.x_count = x_elements - x_at[b];
            t.out = out + b * rows * w_count;
            t.row_factors = t.x_is_vectors ? w_factors + b * w_count : x_factors + b * rows;
            t.column_factors = t.x_is_vectors ? x_factors + b * rows : w_factors + b * w_count;
            fits = solve(&t, x_lines, rows, w_count, groups, threads);
        }
    }
    free(numbers), free(packed), free(sums), free(groups);
    return fits;
}

static void quantise(const float *x, int64_t count, int32_t e, int16_t *out) {
    float first, second;
    if (e >= 129) {
        memset(out, 0, count * sizeof *out);
        return;
    }
    scales(e, &first, &second);
    for (int64_t i = 0; i < count; i++) out[i] = (int16_t)quantised(x[i], first, second);
}

/* Numbers of x [sizes.., channels], with zeros `before` and `after` along the first `rank` dimensions, by an exponent
 * for each row of the result. */
void plane(const float *x, int64_t rank, const int64_t *sizes, const int64_t *before, const int64_t *after,
           int64_t channels, const int32_t *e, int16_t *out, int threads) {
    int64_t wide[MOST_DIMS], rows = 1, outer = before[0] + sizes[0] + after[0];
    for (int64_t d = 1; d < rank; d++) rows *= wide[d] = before[d] + sizes[d] + after[d];
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t o = 0; o < outer; o++) {
        int64_t digits[MOST_DIMS] = {o};
        for (int64_t row = o * rows; row < (o + 1) * rows; row++) {
            int64_t from = 0, inside = 1;
            for (int64_t d = 0; d < rank; d++) {
                int64_t at = digits[d] - before[d];
                inside &= at >= 0 && at < sizes[d];
                from = from * sizes[d] + at;
            }
            if (inside)
                quantise(x + from * channels, channels, e[row], out + row * channels);
            else
                memset(out + row * channels, 0, channels * sizeof *out);
            for (int64_t d = rank - 1; d > 0 && ++digits[d] == wide[d]; d--) digits[d] = 0;
        }
    }
}
