/* Packing f32 operands by vectors of 16 (product_kernel.c has the same in plain C): quantised as docs/arithmetic.md, A31,
 * says, in pairs of neighbouring contracted numbers, with their sums of squares. */

#define ROW_MASK(rows) ((rows) >= 16 ? 0xffff : (rows) > 0 ? (1 << (rows)) - 1 : 0)

/* `quantised` of 16 numbers, in the low 16 bits: the conversion rounds to even, as rintf does, and so does adding 2^23
 * and more. With exponents of their `own` nothing is clamped; what is in a poisoned row does not matter. */
INLINED __m512i quantised_lanes(__m512 x, __m512 first, __m512 second, int own) {
    if (own) return _mm512_castps_si512(_mm512_fmadd_ps(_mm512_mul_ps(x, first), second, _mm512_set1_ps(12582912)));
    __m512 v = _mm512_mul_ps(_mm512_mul_ps(x, first), second);
    __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    v = _mm512_max_ps(_mm512_min_ps(v, _mm512_set1_ps(8192)), _mm512_set1_ps(-8192));
    return _mm512_maskz_cvtps_epi32(number, v);
}

/* Eight pairs of 16 rows, written `width` apart, and the rows' sums of squares. */
INLINED void write_pairs(const __m512i pairs[8], __mmask16 written, int64_t width, int32_t *out, int32_t *squares) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        _mm512_mask_storeu_epi32(out + i * width, written, pairs[i]);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs[i], pairs[i]));
    }
    _mm512_mask_storeu_epi32(squares, written, sum);
}

/* 16 rows whose numbers lie `step` apart, each beside the next row's. */
INLINED void pack_columns(const float *at, int64_t step, int64_t rows, int64_t count, int own, const float *first,
                          const float *second, __mmask16 written, int64_t width, int32_t *out, int32_t *squares) {
    __mmask16 there = ROW_MASK(rows);
    __m512 one = _mm512_maskz_loadu_ps(there, first), other = _mm512_maskz_loadu_ps(there, second);
    __m512i pairs[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __mmask16 low_there = 2 * i < count ? there : 0, high_there = 2 * i + 1 < count ? there : 0;
        __m512i low = quantised_lanes(_mm512_maskz_loadu_ps(low_there, at + 2 * i * step), one, other, own);
        __m512i high = quantised_lanes(_mm512_maskz_loadu_ps(high_there, at + (2 * i + 1) * step), one, other, own);
        pairs[i] = _mm512_mask_mov_epi16(low, 0xaaaaaaaa, _mm512_slli_epi32(high, 16));
    }
    write_pairs(pairs, written, width, out, squares);
}

/* The eight pairs of a row whose numbers lie side by side; zeros for a row that is not there. */
INLINED __m256i pairs_of_row(const float *at, int64_t step, int64_t row, int64_t rows, __mmask16 there, int own,
                             const float *first, const float *second) {
    if (row >= rows) return _mm256_setzero_si256();
    __m512 x = _mm512_maskz_loadu_ps(there, at + row * step);
    return _mm512_cvtepi32_epi16(quantised_lanes(x, _mm512_set1_ps(first[row]), _mm512_set1_ps(second[row]), own));
}

/* 16 rows whose numbers lie side by side, `step` from one row to the next: their pairs are transposed. */
INLINED void pack_rows(const float *at, int64_t step, int64_t rows, int64_t count, int own, const float *first,
                       const float *second, __mmask16 written, int64_t width, int32_t *out, int32_t *squares) {
    const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i upper = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __mmask16 there = ROW_MASK(count);
    __m512i r[8], t[8], q[8], pairs[8]; /* a row and the eighth after it in either half */
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(pairs_of_row(at, step, i, rows, there, own, first, second)),
                                  pairs_of_row(at, step, i + 8, rows, there, own, first, second), 1);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* pairs 0 and 4, 1 and 5, 2 and 6, 3 and 7 of four rows */
        q[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        q[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        q[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        q[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        pairs[i] = _mm512_permutex2var_epi64(q[i], lower, q[i + 4]);
        pairs[i + 4] = _mm512_permutex2var_epi64(q[i], upper, q[i + 4]);
    }
    write_pairs(pairs, written, width, out, squares);
}

/* GRAIN pairs of a panel of f32 that lie side by side by rows or by columns. */
INLINED void pack_lanes(const float *at, int64_t row_step, int64_t number_step, int64_t rows, int64_t count,
                        int64_t width, int own, const float *first, const float *second, int32_t *out,
                        int32_t *squares) {
    for (int64_t r = 0; r < width; r += 16) {
        __mmask16 written = ROW_MASK(width - r);
        int64_t left = rows - r < 0 ? 0 : rows - r;
        const float *from = at + (left ? r * row_step : 0);
        if (row_step == 1)
            pack_columns(from, number_step, left, count, own, first + r, second + r, written, width, out + r,
                         squares + r);
        else
            pack_rows(from, row_step, left, count, own, first + r, second + r, written, width, out + r,
                      squares + r);
    }
}
