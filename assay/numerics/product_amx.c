/* Products of f32 or i16 operands (docs/arithmetic.md, A31, A32) as three int8 products (A51) on AMX tiles; called as
 * `quantised_product` of product_kernel.c is, for at most 4,096 contracted numbers. Compiled with -DSHIM the tiles are
 * plain C (amx_tiles.h), so that the bits can be compared on a machine without AMX; the rest needs AVX-512 BW and VL.
 *
 * Operands are packed in panels of 32 rows. A panel has three parts (high, low, high + low), and each part two tiles of
 * 1 KiB for every 64 contracted numbers. The numbers are permuted within their 64, alike in both operands, so that
 * nothing is shuffled where the left operand lies by rows or the right one by columns; else dwords of 16 x 16 are
 * transposed.
 *
 * Panels of y are packed first, as many as stay in the second cache. Panels of x follow, each packed while the one
 * before it is multiplied. A block of the result is 32 x 32: 2 x 2 tiles of sums, three passes over all contracted
 * numbers. Tiles are loaded past the first cache (TILELOADDT1), which keeps the sums; those of one block are rounded
 * while the next one is multiplied. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "amx_tiles.h"
#include "operand.h"

#define P 32      /* rows of a panel */
#define STEP 64   /* contracted numbers of a tile */
#define TILE 1024 /* bytes */
#define PARTS 3
#define PAGE 1024 /* of i32 */
#define QUARTER 256
#define LINES 16                  /* of a tile */
#define SECOND_CACHE (1000 << 10) /* bytes of packed y that stay there while x goes by */
#define AHEAD 8 /* rows of the result that are fetched before they are written: tile loads wait for stores that miss   \
                 */
#define BURST 2 /* lines that are packed at a time */

typedef struct {
    int64_t panels, steps;
    float *first, *second; /* of quantising, each row */
    float *scale;          /* 2^(e-13) as f32, each row; NaN where poisoned */
    double *factor;        /* the same as f64 */
    uint8_t *single;       /* [panel]: `first` alone is the factor */
    int32_t *least, *most; /* [panel]: exponents, for the choice of rounding */
} scales;

/* ---- scales ---- */
INLINED float f32_power(int32_t n) { /* 2^n, -149 <= n <= 127 */
    union {
        int32_t b;
        float f;
    } m = {n >= -126 ? (n + 127) << 23 : 1 << (n + 149)};
    return m.f;
}
INLINED double f64_power(int32_t n) {
    union {
        int64_t b;
        double d;
    } m = {((int64_t)n + 1023) << 52};
    return m.d;
}
INLINED int32_t clamped(int32_t e) { return e < -125 ? -125 : e > 129 ? 129 : e; }

static void prepare(const matrix *m, const scales *s) {
    for (int64_t panel = 0; panel < s->panels; panel++) {
        int32_t least = 200, most = -200, e_of[P];
        int64_t from = panel * P, to = from + P < m->rows ? from + P : m->rows;
        exponents(m, from, to, e_of);
        for (int64_t r = from; r < to; r++) {
            int32_t e = clamped(e_of[r - from]);
            least = e < least ? e : least, most = e > most ? e : most;
        }
        int single = 13 - least <= 127;
        for (int64_t r = from; r < to; r++) {
            int32_t e = clamped(e_of[r - from]), shift = 13 - e, one = single ? shift : shift >> 1;
            s->first[r] = f32_power(one), s->second[r] = f32_power(shift - one);
            s->scale[r] = e == 129 ? NAN : f32_power(e - 13), s->factor[r] = e == 129 ? NAN : f64_power(e - 13);
        }
        for (int64_t r = to; r < from + P; r++) s->first[r] = s->second[r] = s->scale[r] = 1, s->factor[r] = 1;
        s->single[panel] = single, s->least[panel] = least, s->most[panel] = most;
    }
}

/* ---- packing ---- */
typedef struct {
    __m512i high, low;
} split;

/* hi and lo of 64 numbers, four of each dword together: t has q + 64 in the low half of each i32, 0 <= q + 64 + 2^13.
 */
INLINED split split_of(__m512i t0, __m512i t1, __m512i t2, __m512i t3) {
    __m512i a = _mm512_mask_blend_epi16(0xaaaaaaaa, t0, _mm512_slli_epi32(t1, 16));
    __m512i b = _mm512_mask_blend_epi16(0xaaaaaaaa, t2, _mm512_slli_epi32(t3, 16));
    const __m512i even = _mm512_set1_epi16(0xff);
    split s; /* 0xca: first ? second : third, bit by bit */
    s.high = _mm512_ternarylogic_epi64(even, _mm512_srli_epi16(a, 7), _mm512_slli_epi16(b, 1), 0xca);
    __m512i low = _mm512_ternarylogic_epi64(even, a, _mm512_slli_epi16(b, 8), 0xca);
    s.low = _mm512_sub_epi8(_mm512_and_si512(low, _mm512_set1_epi8(127)), _mm512_set1_epi8(64));
    return s;
}

/* q + 64 in the low 16 bits. Own exponents and one factor: one multiplication and addition, whose rounding to an
 * integer is the rounding to even of A31; else any exponents. */
INLINED __m512i biased(__m512 x, __m512 first, __m512 second, int own) {
    if (own) return _mm512_castps_si512(_mm512_fmadd_ps(x, first, _mm512_set1_ps(12582912.0f + 64.0f)));
    __m512 v = _mm512_mul_ps(_mm512_mul_ps(x, first), second);
    __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    v = _mm512_max_ps(_mm512_min_ps(v, _mm512_set1_ps(8192)), _mm512_set1_ps(-8192));
    return _mm512_add_epi32(_mm512_maskz_cvtps_epi32(number, v), _mm512_set1_epi32(64));
}

#define ROW_MASK(n) ((__mmask16)((n) >= 16 ? 0xffff : (n) > 0 ? (1 << (n)) - 1 : 0))

/* One line, of any exponents and at edges: 64 numbers of a row, or four of each of 16 rows. */
INLINED split line_of(const float *at, int64_t step, int by_rows, int line, int64_t rows, int64_t count,
                      const float *first, const float *second) {
    __m512i t[4];
    __m512 one = by_rows ? _mm512_set1_ps(first[line]) : _mm512_loadu_ps(first);
    __m512 other = by_rows ? _mm512_set1_ps(second[line]) : _mm512_loadu_ps(second);
    for (int i = 0; i < 4; i++) {
        __m512 x = _mm512_setzero_ps();
        if (by_rows && line < rows)
            x = _mm512_maskz_loadu_ps(ROW_MASK(count - 16 * i), at + line * step + 16 * i);
        else if (!by_rows && 16 * i + line < count)
            x = _mm512_maskz_loadu_ps(ROW_MASK(rows), at + (16 * i + line) * step);
        t[i] = biased(x, one, other, 0);
    }
    return split_of(t[0], t[1], t[2], t[3]);
}

INLINED void transposed(__m512i r[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2)
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88),
              t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88), r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88),
              r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

INLINED void store_line(int8_t *out, int64_t part, split s) {
    _mm512_store_si512(out, s.high), _mm512_store_si512(out + part, s.low);
    _mm512_store_si512(out + 2 * part, _mm512_add_epi8(s.high, s.low));
}

/* Transpose lines that were stored as they came, in place, and make high + low again. */
static __attribute__((noinline)) void turn_tile(int8_t *out, int64_t part) {
    __m512i r[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(out + 64 * i);
    transposed(r);
    for (int i = 0; i < 16; i++) _mm512_store_si512(out + 64 * i, r[i]);
    for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(out + part + 64 * i);
    transposed(r);
    for (int i = 0; i < 16; i++) store_line(out + 64 * i, part, (split){_mm512_load_si512(out + 64 * i), r[i]});
}

/* Numbers that lie anyhow, or i16. */
static __attribute__((noinline)) void pack_any(const matrix *m, int64_t row, int64_t k, int left, const scales *s,
                                               int8_t *out, int64_t part) {
    static const int ORDER[4] = {0, 2, 1, 3}; /* bytes of a dword: numbers g, g + 32, g + 16, g + 48 */
    for (int64_t r = 0; r < 16; r++)
        for (int64_t g = 0; g < 16; g++)
            for (int b = 0; b < 4; b++) {
                int64_t i = k + g + 16 * ORDER[b], place = left ? 64 * r + 4 * g + b : 64 * g + 4 * r + b;
                int32_t q = 0;
                if (row + r < m->rows && i < m->length) {
                    int64_t at = (row + r) * m->row_step + i * m->number_step;
                    if (m->integers)
                        q = ((const int16_t *)m->at)[at];
                    else {
                        float v = ((const float *)m->at)[at] * s->first[row + r] * s->second[row + r];
                        v = v > 8192 ? 8192 : v < -8192 ? -8192 : v;
                        q = (int32_t)rintf(v == v ? v : 0);
                    }
                }
                int32_t high = (q + 64) >> 7, low = q - high * 128;
                out[place] = (int8_t)high, out[part + place] = (int8_t)low;
                out[2 * part + place] = (int8_t)(high + low);
            }
}

/* A panel that is being packed: steps and halves in turn, line by line. */
typedef struct {
    const matrix *m;
    const scales *s;
    int8_t *out;                    /* [part][step][half][TILE] */
    int64_t panel, part, next, end; /* lines */
    int64_t step, row;
    int left, by_rows, easy;
    int64_t pace, credit; /* 64ths of a line that a step of a pass packs, and that it may */
    __m512i worst;
} packing;

static void begin(packing *w, const matrix *m, const scales *s, int64_t panel, int left, int8_t *out) {
    int by_rows = m->number_step == 1;
    w->m = m, w->s = s, w->out = out, w->panel = panel, w->part = s->steps * 2 * TILE, w->next = 0,
    w->end = s->steps * 2 * LINES;
    w->left = left, w->by_rows = by_rows, w->pace = w->credit = 0, w->step = w->row = 0,
    w->worst = _mm512_setzero_si512();
    w->easy = !m->integers && (by_rows || m->row_step == 1) && s->single[panel] && m->rows - panel * P >= P &&
              m->length % STEP == 0;
}

/* A whole tile of each part, at an edge or of unusual numbers. */
static __attribute__((noinline)) void pack_tile(packing *w, int64_t step, int64_t half) {
    const matrix *m = w->m;
    int64_t row = w->panel * P + 16 * half, k = step * STEP, rows = m->rows - row, count = m->length - k;
    int8_t *out = w->out + (step * 2 + half) * TILE;
    if (m->integers || (m->number_step != 1 && m->row_step != 1)) {
        pack_any(m, row, k, w->left, w->s, out, w->part);
        return;
    }
    if (rows < 0) rows = 0;
    const float *at = (const float *)m->at + (rows ? row * m->row_step : 0) + k * m->number_step;
    for (int line = 0; line < LINES; line++) {
        split s = w->by_rows ? line_of(at, m->row_step, 1, line, rows, count, w->s->first + row, w->s->second + row)
                             : line_of(at, m->number_step, 0, line, rows, count, w->s->first + row, w->s->second + row);
        store_line(out + 64 * line, w->part, s);
    }
    if (w->by_rows != w->left) turn_tile(out, w->part);
}

/* Lines of an easy panel: `count` steps from `step` on of one row where it lies by rows, else of the four numbers of
 * either half's 16 rows. Everything is in registers: what is stored might be what `w` is, for all that a compiler
 * knows. */
INLINED void pack_run(packing *w, int64_t step, int64_t row, int64_t count) {
    const matrix *m = w->m;
    int64_t half = row / 16, line = row % 16, first_row = w->panel * P + 16 * half, part = w->part;
    int64_t apart = w->by_rows ? 16 : 16 * m->number_step, next = 4 * apart;
    const float *at = (const float *)m->at + first_row * m->row_step + step * STEP * m->number_step;
    const float *first = w->s->first + first_row;
    at += line * (w->by_rows ? m->row_step : m->number_step);
    int8_t *out = w->out + (step * 2 + half) * TILE + 64 * line;
    __m512 scale = w->by_rows ? _mm512_set1_ps(first[line]) : _mm512_loadu_ps(first);
    __m512i worst = w->worst;
    for (; count > 0; count--, at += next, out += 2 * TILE) {
        __m512i t[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t[i] = biased(_mm512_loadu_ps(at + i * apart), scale, scale, 1);
            worst = _mm512_max_epu32(worst, _mm512_sub_epi32(t[i], _mm512_set1_epi32(0x4b400000 + 64 - 8192)));
        }
        store_line(out, part, split_of(t[0], t[1], t[2], t[3]));
    }
    w->worst = worst;
}

INLINED int odd(packing *w) { /* whether there were numbers that own exponents do not have, since it was last asked */
    if (!_mm512_cmpgt_epu32_mask(w->worst, _mm512_set1_epi32(16384))) return 0;
    w->worst = _mm512_setzero_si512();
    return 1;
}

/* So many lines more. Numbers that lie by rows are read row by row, so that processors see what comes next. */
INLINED void pack_lines(packing *w, int64_t count) {
    int64_t stop = w->next + count < w->end ? w->next + count : w->end, steps = w->end / (2 * LINES);
    while (w->next < stop) {
        if (!w->easy) {
            pack_tile(w, w->next / (2 * LINES), w->next / LINES % 2);
            w->next += LINES;
        } else if (w->by_rows) {
            int64_t half = w->next >= steps * LINES;
            int64_t run = stop - w->next < steps - w->step ? stop - w->next : steps - w->step;
            pack_run(w, w->step, w->row, run);
            w->next += run, w->step += run;
            if (w->step < steps) continue;
            w->step = 0;
            if (++w->row % 16) continue;
            int again = odd(w);
            for (int64_t i = 0; i < steps && again; i++) pack_tile(w, i, half);
            for (int64_t i = 0; i < steps && !again && !w->left; i++)
                turn_tile(w->out + (i * 2 + half) * TILE, w->part);
        } else {
            int64_t half = w->row / 16;
            pack_run(w, w->step, w->row, 1);
            w->next++;
            if (++w->row % 16) continue;
            if (odd(w))
                pack_tile(w, w->step, half);
            else if (w->left)
                turn_tile(w->out + (w->step * 2 + half) * TILE, w->part);
            if (w->row == P) w->row = 0, w->step++;
        }
    }
}

/* All panels of y from `start` to `stop`; where numbers lie by columns, line by line over all of them. */
static void pack_right(const matrix *m, const scales *s, int64_t start, int64_t stop, int8_t *out,
                       int64_t panel_bytes) {
    packing w;
    int64_t left = stop;
    for (int64_t j = start; j < stop; j++) {
        begin(&w, m, s, j, 0, out + (j - start) * panel_bytes);
        if (w.easy && !w.by_rows)
            left = left < j ? left : j;
        else
            pack_lines(&w, w.end);
    }
    for (int64_t step = 0; step < s->steps && left < stop; step++) {
        int again = 0;
        for (int64_t line = 0; line <= LINES; line++) { /* and once more where there were odd numbers */
            if (line == LINES && !again) break;
            for (int64_t j = left; j < stop; j++) {
                if (!s->single[j] || m->rows - j * P < P) continue;
                w.panel = j, w.out = out + (j - start) * panel_bytes, w.by_rows = 0, w.left = 0;
                if (line == LINES)
                    pack_tile(&w, step, 0), pack_tile(&w, step, 1);
                else
                    pack_run(&w, step, line, 1), pack_run(&w, step, line + 16, 1);
            }
            if (line == LINES - 1) again = odd(&w);
        }
    }
}

/* ---- rounding ---- */
typedef struct {
    const int32_t *sums; /* [tile][part][16][16], a tile's three parts in three quarters of a page */
    float *out;
    int64_t step, rows, columns;
    const float *x_scale, *y_scale;
    const double *x_factor, *y_factor;
    int fast, more;    /* more: another block to the right of this one */
    int64_t next, end; /* vectors of 16: row * 2 + half */
} rounding;

/* One vector of which not everything is usual: f64, an edge, or only the sum. */
static __attribute__((noinline)) void round_any(const rounding *w, int64_t r, int64_t half, __m512i hh, __m512i ll,
                                                __m512i cross) {
    __mmask16 there = ROW_MASK(w->columns - 16 * half);
    int64_t to = r * w->step + 16 * half;
    const __m512d big = _mm512_set1_pd(16384), mid = _mm512_set1_pd(128);
    if (r >= w->rows || !there) return;
#define HALF(v, i) _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, i))
    __m512d low = _mm512_fmadd_pd(HALF(hh, 0), big, _mm512_fmadd_pd(HALF(cross, 0), mid, HALF(ll, 0)));
    __m512d high = _mm512_fmadd_pd(HALF(hh, 1), big, _mm512_fmadd_pd(HALF(cross, 1), mid, HALF(ll, 1)));
#undef HALF
    __m512d x = _mm512_set1_pd(w->x_factor[r]);
    low = _mm512_mul_pd(_mm512_mul_pd(low, x), _mm512_loadu_pd(w->y_factor + 16 * half));
    high = _mm512_mul_pd(_mm512_mul_pd(high, x), _mm512_loadu_pd(w->y_factor + 16 * half + 8));
    __m512 made = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
    _mm512_mask_storeu_ps(w->out + to, there, made);
}

INLINED __m512i cross_of(const int32_t *s, __m512i *hh, __m512i *ll) {
    *hh = _mm512_load_si512(s), *ll = _mm512_load_si512(s + QUARTER);
    __m512i third = _mm512_load_si512(s + 2 * QUARTER);
    return _mm512_sub_epi32(_mm512_sub_epi32(third, *hh), *ll);
}

INLINED void round_vectors(rounding *w, int64_t count) {
    int64_t v = w->next, stop = v + count < w->end ? v + count : w->end, step = w->step;
    const int32_t *sums = w->sums;
    __m512i hh, ll, cross;
    w->next = stop;
    if (!w->fast) {
        for (; v < stop; v++) {
            cross = cross_of(sums + ((v >> 5) * 2 + (v & 1)) * PAGE + (v >> 1 & 15) * 16, &hh, &ll);
            round_any(w, v >> 1, v & 1, hh, ll, cross);
        }
        return;
    }
    float *out = w->out;
    const float *x_scale = w->x_scale, *y_scale = w->y_scale;
    int64_t ahead = AHEAD * step, beyond = w->more ? (AHEAD - P) * step + P : 0;
    for (; v < stop; v++) {
        int64_t r = v >> 1, half = v & 1;
        cross = cross_of(sums + ((r >> 4) * 2 + half) * PAGE + (r & 15) * 16, &hh, &ll);
        float *to = out + r * step + 16 * half;
        __builtin_prefetch(to + (r < P - AHEAD ? ahead : beyond), 1);
        /* S = U * 2^14 + V, 0 <= V < 2^14, |U| <= 2^24: both f32. One addition rounds, and powers of two scale. */
        __m512i y = _mm512_add_epi32(cross, _mm512_srai_epi32(ll, 7));
        __m512i u = _mm512_add_epi32(hh, _mm512_srai_epi32(y, 7));
        __m512i low = _mm512_ternarylogic_epi32(_mm512_set1_epi32(127), ll, _mm512_slli_epi32(y, 7), 0xca);
        low = _mm512_and_si512(low, _mm512_set1_epi32(16383));
        __m512 made = _mm512_fmadd_ps(_mm512_cvtepi32_ps(u), _mm512_set1_ps(16384), _mm512_cvtepi32_ps(low));
        made = _mm512_mul_ps(_mm512_mul_ps(made, _mm512_set1_ps(x_scale[r])), _mm512_loadu_ps(y_scale + 16 * half));
        _mm512_storeu_ps(to, made);
    }
}

/* ---- multiplying ---- */
/* What one thread has under way. */
typedef struct {
    int32_t *unstored; /* where the tiles' sums belong, or NULL */
    rounding round;
    packing pack;
    const int8_t *soon, *soon_end; /* the next panel of x, packed long ago */
    int64_t soon_pace;             /* lines of it that a step fetches into the second cache */
} state;

/* The sums of the pass before are stored one tile at a time, just before the first use of it. */
#define FIRST(tile, x, y)                                                                                              \
    if (old) tile_store(tile, old + PAGE * (tile), 64);                                                                \
    tile_zero(tile);                                                                                                   \
    tile_dot(tile, x, y)

/* One pass: 2 x 2 tiles of one part over all steps, beside each step, `pace`
 * vectors are rounded and some lines packed. */
INLINED void multiply_pass(const int8_t *a, const int8_t *b, int64_t steps, int32_t *sums, state *st, int64_t pace) {
    int32_t *old = st->unstored;
    tile_barrier();
    tile_load_once(4, a, 64);
    tile_load_once(6, b, 64);
    FIRST(0, 4, 6);
    tile_load_once(7, b + TILE, 64);
    FIRST(1, 4, 7);
    tile_load_once(5, a + TILE, 64);
    FIRST(2, 5, 6);
    FIRST(3, 5, 7);
    tile_barrier();
    for (int64_t k = 1;; k++) {
        if (st->round.next < st->round.end) round_vectors(&st->round, pace);
        if (st->pack.next < st->pack.end && (st->pack.credit += st->pack.pace) >= 64 * BURST) {
            pack_lines(&st->pack, st->pack.credit / 64);
            st->pack.credit %= 64;
        }
        if (st->soon < st->soon_end) {
            const int8_t *stop = st->soon + 64 * st->soon_pace;
            for (const int8_t *at = st->soon; at < stop; at += 64) __builtin_prefetch(at, 0, 2);
            st->soon = stop;
        }
        if (k == steps) break;
        a += 2 * TILE, b += 2 * TILE;
        tile_load_once(4, a, 64);
        tile_load_once(6, b, 64);
        tile_dot(0, 4, 6);
        tile_load_once(7, b + TILE, 64);
        tile_dot(1, 4, 7);
        tile_load_once(5, a + TILE, 64);
        tile_dot(2, 5, 6);
        tile_dot(3, 5, 7);
    }
    st->unstored = sums;
}

static void store_last(state *st) {
    int32_t *old = st->unstored;
    if (!old) return;
    tile_store(0, old, 64);
    tile_store(1, old + PAGE, 64);
    tile_store(2, old + 2 * PAGE, 64);
    tile_store(3, old + 3 * PAGE, 64);
    tile_barrier();
    st->unstored = NULL;
}

static void configure(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = 16;
    __asm__ volatile("" : : "r"(&c) : "memory");
    tile_config(&c);
}

/* Panels of y that stay in the second cache while x goes by. */
static int64_t resident(int64_t steps) {
    int64_t most = SECOND_CACHE / (steps * PARTS * 2 * TILE);
    return most < 1 ? 1 : most;
}

/* A thread's room: two panels of x, or all where they go by more than once, those of y, the sums of two blocks. */
static size_t thread_bytes(int64_t steps, int64_t x_panels, int64_t panels) {
    int64_t most = resident(steps), kept = panels <= most || x_panels < 2 ? 2 : x_panels;
    return (kept + (panels < most ? panels : most)) * steps * PARTS * 2 * TILE + sizeof(int32_t) * 2 * 4 * PAGE;
}

/* Panels of x from `start` to `stop` by panels of y from `from` to `to`. */
static void multiply_all(const matrix *x, const scales *xs, const matrix *y, const scales *ys, float *out,
                         int64_t start, int64_t stop, int64_t from, int64_t to, char *own) {
    if (start == stop || from == to) return;
    int64_t steps = xs->steps, part = steps * 2 * TILE, panel = PARTS * part, most = resident(steps),
            blocks = (to - from + most - 1) / most;
    int64_t block = (to - from + blocks - 1) / blocks, lines = steps * 2 * LINES,
            pace = (64 + PARTS * steps - 1) / (PARTS * steps);
    int32_t *sums[2] = {(int32_t *)own, (int32_t *)own + 4 * PAGE};
    int8_t *right = (int8_t *)own + sizeof(int32_t) * 2 * 4 * PAGE, *left = right + block * panel;
    state st = {0};
    int turn = 0;
    configure();
    for (int64_t f = from; f < to; f += block) {
        int64_t end = f + block < to ? f + block : to;
#define LEFT(i) (left + (blocks > 1 ? (i) - start : ((i) - start) % 2) * panel)
        if (f == from) {
            begin(&st.pack, x, xs, start, 1, LEFT(start));
            pack_lines(&st.pack, lines);
        }
        pack_right(y, ys, f, end, right, panel);
        for (int64_t i = start; i < stop; i++) {
            const int8_t *now = LEFT(i);
            int64_t all = (end - f) * PARTS * steps;
            if (f == from && i + 1 < stop) {
                begin(&st.pack, x, xs, i + 1, 1, LEFT(i + 1));
                st.pack.pace = (64 * lines + all - 1) / all;
            } else if (end < to || i + 1 < stop) {
                st.soon = LEFT(i + 1 < stop ? i + 1 : start), st.soon_end = st.soon + panel,
                st.soon_pace = (panel / 64 + all - 1) / all;
            }
            for (int64_t j = f; j < end; j++, turn ^= 1) {
                const int8_t *other = right + (j - f) * panel;
                multiply_pass(now, other, steps, sums[turn], &st, pace);
                multiply_pass(now + part, other + part, steps, sums[turn] + QUARTER, &st, pace);
                multiply_pass(now + 2 * part, other + 2 * part, steps, sums[turn] + 2 * QUARTER, &st, pace);
                round_vectors(&st.round, 64); /* what is left */
                int64_t row = i * P, column = j * P, columns = y->rows, here = row * columns + column;
                int32_t least = xs->least[i], low = ys->least[j];
                int fast = least >= -113 && low >= -113 && least + low >= -100 && xs->most[i] <= 102 &&
                           ys->most[j] <= 128 && x->rows - row >= P && columns - column >= P;
                /* field by field: a copy of the whole would wait, wider than what was stored, for all stores of tiles
                 */
                rounding *w = &st.round;
                w->sums = sums[turn], w->out = out + here;
                w->step = columns, w->rows = x->rows - row, w->columns = columns - column;
                w->x_scale = xs->scale + row, w->y_scale = ys->scale + column;
                w->x_factor = xs->factor + row, w->y_factor = ys->factor + column;
                w->fast = fast, w->more = j + 1 < end && columns - column >= 2 * P, w->next = 0, w->end = 64;
                /* its last sums are stored by the next pass, in its first step */
            }
            if (f == from) pack_lines(&st.pack, lines);
        }
    }
    store_last(&st);
    round_vectors(&st.round, 64);
    tile_release();
}

/* ---- room ---- */
typedef struct {
    char *at;
    size_t size;
} room;
static _Thread_local room kept_room;
static char *room_of(size_t bytes) {
    const size_t huge = 2 << 20;
    if (kept_room.size < bytes) {
        if (kept_room.at) munmap(kept_room.at, kept_room.size);
        size_t size = (bytes + huge - 1) / huge * huge;
        char *at = mmap(NULL, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            kept_room = (room){0};
            return NULL;
        }
        char *whole = (char *)(((uintptr_t)at + huge - 1) / huge * huge);
        if (whole > at) munmap(at, whole - at);
        munmap(whole + size, at + huge - whole);
        madvise(whole, size, MADV_HUGEPAGE);
        kept_room = (room){whole, size};
    }
    return kept_room.at;
}

static size_t scale_bytes(int64_t rows) {
    int64_t panels = (rows + P - 1) / P;
    return (panels * P * (3 * 4 + 8) + panels * 9 + 63) / 64 * 64;
}
static scales carve(char *at, int64_t rows, int64_t length) {
    scales s = {.panels = (rows + P - 1) / P, .steps = (length + STEP - 1) / STEP};
    s.factor = (double *)at, at += s.panels * P * 8;
    s.first = (float *)at, at += s.panels * P * 4;
    s.second = (float *)at, at += s.panels * P * 4;
    s.scale = (float *)at, at += s.panels * P * 4;
    s.least = (int32_t *)at, at += s.panels * 4;
    s.most = (int32_t *)at, at += s.panels * 4;
    s.single = (uint8_t *)at;
    return s;
}

/* One product. Each thread makes a rectangle of it, and packs for itself. */
static int solve(const matrix *x, const matrix *y, float *out, int threads) {
    int64_t steps = (x->length + STEP - 1) / STEP;
    size_t own = thread_bytes(steps, (x->rows + P - 1) / P, (y->rows + P - 1) / P), x_bytes = scale_bytes(x->rows),
           y_bytes = scale_bytes(y->rows);
    char *at = room_of(threads * own + x_bytes + y_bytes), *end = at + threads * own;
    if (!at) return 0;
    scales xs = carve(end, x->rows, x->length), ys = carve(end + x_bytes, y->rows, y->length);
    prepare(x, &xs), prepare(y, &ys);
    if (threads == 1) {
        multiply_all(x, &xs, y, &ys, out, 0, xs.panels, 0, ys.panels, at);
        return 1;
    }
    int64_t down = 1; /* threads one below another; least is packed where rectangles are most alike squares */
    for (int64_t d = 2; d <= threads; d++)
        if (threads % d == 0 && xs.panels / d + ys.panels * d / threads < xs.panels / down + ys.panels * down / threads)
            down = d;
    int64_t across = threads / down;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        int64_t i = t / across, j = t % across;
        multiply_all(x, &xs, y, &ys, out, xs.panels * i / down, xs.panels * (i + 1) / down, ys.panels * j / across,
                     ys.panels * (j + 1) / across, at + t * own);
    }
    return 1;
}

/* 0 where Linux gives this process the tiles. */
int amx_permission(void) {
#ifdef SHIM
    return 0;
#else
    return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */);
#endif
}
