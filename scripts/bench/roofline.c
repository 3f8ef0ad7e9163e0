/* How many multiplications and additions a second one thread makes of each kind of vector instruction: twelve sums that do
 * not wait for one another, and nothing else. */

#include <immintrin.h>
#include <time.h>

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#define SUMS 12
#define TURNS 2000000
#define MOST 5

/* The best of some runs of `sum = made of sum, a and b`, in multiplications a second; `each` are those of an instruction. */
#define RATE(name, kind, zero, made, each)                                                                             \
    double name(void) {                                                                                                \
        double best = 0;                                                                                               \
        for (int run = 0; run < MOST; run++) {                                                                         \
            kind a = zero, b = zero, sums[SUMS];                                                                       \
            for (int i = 0; i < SUMS; i++) sums[i] = zero;                                                             \
            double from = processor_seconds();                                                                         \
            for (long turn = 0; turn < TURNS; turn++) {                                                                \
                __asm__ volatile("" : "+v"(a), "+v"(b)); /* known to nobody, so that nothing is left out */           \
                _Pragma("GCC unroll 12") for (int i = 0; i < SUMS; i++) {                                              \
                    kind sum = sums[i];                                                                                \
                    sums[i] = made;                                                                                    \
                    __asm__ volatile("" : "+v"(sums[i]));                                                              \
                }                                                                                                      \
            }                                                                                                          \
            double rate = (double)TURNS * SUMS * (each) / (processor_seconds() - from);                                \
            best = rate > best ? rate : best;                                                                          \
        }                                                                                                              \
        return best;                                                                                                   \
    }

#if defined(__AVX512F__)
RATE(f32, __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(a, b, sum), 16)
#elif defined(__FMA__)
RATE(f32, __m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, sum), 8)
#else
double f32(void) { return 0; }
#endif

#if defined(__AVX512VNNI__)
RATE(i16, __m512i, _mm512_setzero_si512(), _mm512_dpwssd_epi32(sum, a, b), 32)
#elif defined(__AVX2__)
RATE(i16, __m256i, _mm256_setzero_si256(), _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)), 16)
#else
double i16(void) { return 0; }
#endif

#if defined(__AVX512BF16__)
RATE(bf16, __m512, _mm512_setzero_ps(), _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b), 32)
#else
double bf16(void) { return 0; }
#endif
