/* What these kernels share: lanes of i32 that take products of i16 pairs, and quantising (docs/arithmetic.md, A31). */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512BW__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef int32_t lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t unaligned_lanes __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

/* sum + a.low * b.low + a.high * b.high in each lane, `a` one pair in all of them; wraps where the caller lets it. */
static inline lanes dot(lanes sum, lanes a, lanes b) {
#if defined(__AVX512VNNI__)
    return (lanes)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
    return sum + (lanes)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (lanes)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__aarch64__)
    int16x4_t pair = vget_low_s16(vreinterpretq_s16_s32((int32x4_t)a));
    int32x4_t low = vmlal_lane_s16((int32x4_t)sum, vmovn_s32((int32x4_t)b), pair, 0);
    return (lanes)vmlal_lane_s16(low, vshrn_n_s32((int32x4_t)b, 16), pair, 1);
#else
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

static inline float power_of_two(int32_t n) {
    union {
        int32_t bits;
        float value;
    } made = {(n + 127) * (1 << 23)};
    return made.value;
}

/* Two factors whose product is 2^(13-e); for a poisoned e any. */
static inline void scales(int32_t e, float *first, float *second) {
    int32_t shift = 13 - (e < -125 ? -125 : e > 129 ? 129 : e);
    *first = power_of_two(shift >> 1), *second = power_of_two(shift - (shift >> 1));
}

/* RNE(x * 2^(13-e)) in [-8192, 8192], 0 for NaN. */
static inline int32_t quantised(float x, float first, float second) {
    float v = x * first * second;
    v = v > 8192 ? 8192 : v < -8192 ? -8192 : v;
    return (int32_t)rintf(v == v ? v : 0);
}
