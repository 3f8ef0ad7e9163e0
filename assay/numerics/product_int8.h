/* Products as three of int8 (docs/arithmetic.md, A51) on ARM's dot products, four times as wide as those of i16: no sum of
 * at most 2^17 numbers overflows i32, so that nothing is cut. What product_kernel.c has for pairs of i16, for parts. */

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define TOGETHER 8 /* numbers of a row that one instruction multiplies */
#else
#define TOGETHER 4
#endif
#define NUMBERS (2 * GRAIN)

/* A grain: parts[high, low, high + low][numbers in turns of TOGETHER][row][TOGETHER]. */
INLINED void pack_grain(const matrix *m, const char *at, int integers, int64_t rows, int64_t count, int64_t width,
                        const float *first, const float *second, int32_t *out) {
    int8_t *parts = (int8_t *)out;
    int64_t size = NUMBERS * width;
    if (rows < width) memset(parts, 0, 3 * size);
    for (int64_t r = 0; r < rows; r++) {
        int16_t q[NUMBERS] = {0};
        int8_t made[3][NUMBERS];
        int64_t from = r * m->row_step;
        for (int64_t i = 0; i < count; i++)
            q[i] = (int16_t)number(at, from + i * m->number_step, integers, first[r], second[r]);
        for (int i = 0; i < NUMBERS; i++) {
            int16_t high = (int16_t)((q[i] + 64) >> 7), low = (int16_t)(q[i] - high * 128);
            made[0][i] = (int8_t)high, made[1][i] = (int8_t)low, made[2][i] = (int8_t)(high + low);
        }
        for (int part = 0; part < 3; part++)
            for (int i = 0; i < NUMBERS / TOGETHER; i++)
                memcpy(parts + part * size + (i * width + r) * TOGETHER, made[part] + i * TOGETHER, TOGETHER);
    }
}

/* Nothing is cut. */
INLINED void square(const int32_t *parts, int64_t width, int32_t *squares) {
    (void)parts;
    memset(squares, 0, width * sizeof *squares);
}

/* sums[r] = one part of a panel of x by the same of a panel of y. */
#if defined(__ARM_FEATURE_MATMUL_INT8)
static void tile(const int8_t *x, const int8_t *y, int64_t grains, int32_t (*sums)[WIDE]) {
    int32x4_t s[HIGH / 2][WIDE / 2]; /* two rows by two each */
    for (int r = 0; r < HIGH / 2; r++)
        for (int c = 0; c < WIDE / 2; c++) s[r][c] = vdupq_n_s32(0);
    for (int64_t g = 0; g < grains; g++, x += 2 * NUMBERS * HIGH, y += 2 * NUMBERS * WIDE)
        for (int i = 0; i < NUMBERS / TOGETHER; i++, x += TOGETHER * HIGH, y += TOGETHER * WIDE) {
            int8x16_t a[HIGH / 2];
            for (int r = 0; r < HIGH / 2; r++) a[r] = vld1q_s8(x + 16 * r);
            for (int c = 0; c < WIDE / 2; c++) {
                int8x16_t b = vld1q_s8(y + 16 * c);
                for (int r = 0; r < HIGH / 2; r++) s[r][c] = vmmlaq_s32(s[r][c], a[r], b);
            }
        }
    for (int r = 0; r < HIGH / 2; r++)
        for (int c = 0; c < WIDE / 2; c++) {
            vst1_s32(sums[2 * r] + 2 * c, vget_low_s32(s[r][c]));
            vst1_s32(sums[2 * r + 1] + 2 * c, vget_high_s32(s[r][c]));
        }
}
#else
#define ROW(r)                                                                                                         \
    for (int c = 0; c < WIDE / 4; c++) s[r][c] = vdotq_laneq_s32(s[r][c], b[c], a[(r) / 4], (r) % 4)

static void tile(const int8_t *x, const int8_t *y, int64_t grains, int32_t (*sums)[WIDE]) {
    int32x4_t s[HIGH][WIDE / 4];
    for (int r = 0; r < HIGH; r++)
        for (int c = 0; c < WIDE / 4; c++) s[r][c] = vdupq_n_s32(0);
    for (int64_t g = 0; g < grains; g++, x += 2 * NUMBERS * HIGH, y += 2 * NUMBERS * WIDE)
        for (int i = 0; i < NUMBERS / TOGETHER; i++, x += TOGETHER * HIGH, y += TOGETHER * WIDE) {
            int8x16_t a[HIGH / 4] = {vld1q_s8(x), vld1q_s8(x + 16)}, b[WIDE / 4];
            for (int c = 0; c < WIDE / 4; c++) b[c] = vld1q_s8(y + 16 * c);
            ROW(0);
            ROW(1);
            ROW(2);
            ROW(3);
            ROW(4);
            ROW(5);
            ROW(6);
            ROW(7);
        }
    for (int r = 0; r < HIGH; r++)
        for (int c = 0; c < WIDE / 4; c++) vst1q_s32(sums[r] + 4 * c, s[r][c]);
}
#endif

/* Sums of a panel of x by one of y, in `total`. */
static int cell_sums(const int32_t *a, const int32_t *b, int64_t rows, const int64_t *cuts, int64_t cut_count,
                     int32_t (*sums)[WIDE], double (*total)[WIDE]) {
    int32_t low[HIGH][WIDE], both[HIGH][WIDE];
    const int8_t *x = (const int8_t *)a, *y = (const int8_t *)b;
    int64_t grains = cuts[cut_count];
    tile(x, y, grains, sums);
    tile(x + NUMBERS * HIGH, y + NUMBERS * WIDE, grains, low);
    tile(x + 2 * NUMBERS * HIGH, y + 2 * NUMBERS * WIDE, grains, both);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t l = 0; l < WIDE; l++) {
            int64_t high = sums[r][l], cross = (int64_t)both[r][l] - high - low[r][l];
            total[r][l] = (double)(high * 16384 + cross * 128 + low[r][l]);
        }
    return 1;
}
