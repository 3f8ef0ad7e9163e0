/* SHA-256 over a tensor's tree (docs/protocol.md, 1.1 to 1.4), on the SHA instructions of x86 and ARM processors.
 *
 * One message after the other leaves the processor waiting for each round, so LANES messages take turns: 2.5 GB/s on
 * one core where one stream reaches 1.8. Nothing is allocated and no lock is held. program/sha_kernel.py compiles,
 * checks and calls this file; the definition is protocol/trees.py.
 *
 * Source: FIPS 180-4; on x86 the order of state words and of the message schedule is that of Intel's description of the
 * instructions (S. Gulley et al., "Intel SHA Extensions", 2013).
 */
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#else
#include <arm_neon.h>
#include <sys/auxv.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 4
#define BLOCK 64
#define DIGEST 32
#define LONGEST 2048 /* bytes in a leaf */
#if defined(__x86_64__)
#define WITH_SHA __attribute__((target("sha,sse4.1")))
typedef __m128i words; /* four */
#else
#define WITH_SHA __attribute__((target("+crypto")))
typedef uint32x4_t words;
#endif

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Prefix;

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)
/* Whether this processor has the instructions. */
int usable(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

/* One block of each lane into its state (words abef and cdgh). */
WITH_SHA static void compress(words abef[LANES], words cdgh[LANES], const uint8_t *const block[LANES]) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i x[LANES], y[LANES], w[LANES][4];
    for (int l = 0; l < LANES; l++) {
        x[l] = abef[l];
        y[l] = cdgh[l];
        for (int j = 0; j < 4; j++)
            w[l][j] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block[l] + 16 * j)), swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __m128i k = _mm_loadu_si128((const __m128i *)(K + 4 * i));
#pragma GCC unroll 4
        for (int l = 0; l < LANES; l++) {
            const __m128i now = w[l][i & 3], last = w[l][(i + 3) & 3], sum = _mm_add_epi32(now, k);
            y[l] = _mm_sha256rnds2_epu32(y[l], x[l], sum);
            x[l] = _mm_sha256rnds2_epu32(x[l], y[l], _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) {
                const __m128i far = _mm_alignr_epi8(last, w[l][(i + 2) & 3], 4);
                const __m128i near = _mm_sha256msg1_epu32(now, w[l][(i + 1) & 3]);
                w[l][i & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(near, far), last);
            }
        }
    }
    for (int l = 0; l < LANES; l++) {
        abef[l] = _mm_add_epi32(abef[l], x[l]);
        cdgh[l] = _mm_add_epi32(cdgh[l], y[l]);
    }
}

WITH_SHA static void begin(words *abef, words *cdgh) {
    *abef = _mm_set_epi32(0x6a09e667, (int)0xbb67ae85, 0x510e527f, (int)0x9b05688c);
    *cdgh = _mm_set_epi32(0x3c6ef372, (int)0xa54ff53a, 0x1f83d9ab, 0x5be0cd19);
}

WITH_SHA static void write_digest(uint8_t *out, words abef, words cdgh) {
    uint32_t p[4], q[4];
    memcpy(p, &abef, 16);
    memcpy(q, &cdgh, 16);
    const uint32_t words[8] = {p[3], p[2], q[3], q[2], p[1], p[0], q[1], q[0]};
    for (int j = 0; j < 8; j++) {
        const uint32_t big = __builtin_bswap32(words[j]);
        memcpy(out + 4 * j, &big, 4);
    }
}
#else
#define HAS_SHA2 (1 << 6) /* of Linux's capabilities of 64-bit ARM */

/* Whether this processor has the instructions. */
int usable(void) { return (getauxval(AT_HWCAP) & HAS_SHA2) != 0; }

/* One block of each lane into its state (words abcd and efgh). */
WITH_SHA static void compress(words abcd[LANES], words efgh[LANES], const uint8_t *const block[LANES]) {
    words x[LANES], y[LANES], w[LANES][4];
    for (int l = 0; l < LANES; l++) {
        x[l] = abcd[l];
        y[l] = efgh[l];
        for (int j = 0; j < 4; j++) w[l][j] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(block[l] + 16 * j)));
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const words k = vld1q_u32(K + 4 * i);
#pragma GCC unroll 4
        for (int l = 0; l < LANES; l++) {
            const words now = w[l][i & 3], sum = vaddq_u32(now, k), before = x[l];
            x[l] = vsha256hq_u32(before, y[l], sum);
            y[l] = vsha256h2q_u32(y[l], before, sum);
            if (i < 12)
                w[l][i & 3] = vsha256su1q_u32(vsha256su0q_u32(now, w[l][(i + 1) & 3]), w[l][(i + 2) & 3],
                                              w[l][(i + 3) & 3]);
        }
    }
    for (int l = 0; l < LANES; l++) {
        abcd[l] = vaddq_u32(abcd[l], x[l]);
        efgh[l] = vaddq_u32(efgh[l], y[l]);
    }
}

WITH_SHA static void begin(words *abcd, words *efgh) {
    *abcd = (words){0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a};
    *efgh = (words){0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
}

WITH_SHA static void write_digest(uint8_t *out, words abcd, words efgh) {
    vst1q_u8(out, vrev32q_u8(vreinterpretq_u8_u32(abcd)));
    vst1q_u8(out + 16, vrev32q_u8(vreinterpretq_u8_u32(efgh)));
}
#endif

/* The message's first block, and its last one or two with padding: what does not lie in `data` as it is hashed. */
static void edges(uint8_t head[BLOCK], uint8_t tail[2 * BLOCK], size_t tails, const uint8_t *data, size_t size, Prefix p) {
    const size_t total = p.size + size, whole = total / BLOCK * BLOCK;
    memset(tail, 0, 2 * BLOCK);
    if (whole) {
        memcpy(head, p.bytes, p.size);
        memcpy(head + p.size, data, BLOCK - p.size);
        memcpy(tail, data + whole - p.size, total - whole);
    } else {
        memcpy(tail, p.bytes, p.size);
        memcpy(tail + p.size, data, size);
    }
    tail[total - whole] = 0x80;
    const uint64_t bits = __builtin_bswap64((uint64_t)total * 8);
    memcpy(tail + tails * BLOCK - 8, &bits, 8);
}

/* SHA-256 of prefix and message for LANES messages of one size; the prefix is shorter than a block. */
WITH_SHA static void hash_lanes(const uint8_t *const data[LANES], size_t size, Prefix p, uint8_t out[LANES][DIGEST]) {
    const size_t total = p.size + size, whole = total / BLOCK, tails = total % BLOCK + 9 > BLOCK ? 2 : 1;
    uint8_t head[LANES][BLOCK], tail[LANES][2 * BLOCK];
    words state[2][LANES];
    const uint8_t *block[LANES];
    for (int l = 0; l < LANES; l++) {
        edges(head[l], tail[l], tails, data[l], size, p);
        begin(state[0] + l, state[1] + l);
    }
    for (size_t b = 0; b < whole + tails; b++) {
        for (int l = 0; l < LANES; l++)
            block[l] = b >= whole ? tail[l] + (b - whole) * BLOCK : b ? data[l] + b * BLOCK - p.size : head[l];
        compress(state[0], state[1], block);
    }
    for (int l = 0; l < LANES; l++) write_digest(out[l], state[0][l], state[1][l]);
}

/* The bytes with every NaN of these f32 written 0x7fc00000: themselves if there is none, else a copy in `room`. */
static const uint8_t *canonical(const uint8_t *data, size_t size, uint8_t *room) {
    uint32_t word, found = 0;
    for (size_t i = 0; i < size; i += 4) {
        memcpy(&word, data + i, 4);
        found |= (word & 0x7fffffff) > 0x7f800000;
    }
    if (!found) return data;
    for (size_t i = 0; i < size; i += 4) {
        memcpy(&word, data + i, 4);
        if ((word & 0x7fffffff) > 0x7f800000) word = 0x7fc00000;
        memcpy(room + i, &word, 4);
    }
    return room;
}

/* Digests of `count` messages of `size` bytes that lie one after the other; `out` may be `data`. */
WITH_SHA static void hash_all(const uint8_t *data, size_t count, size_t size, int floats, Prefix p, uint8_t *out) {
    uint8_t room[LANES][LONGEST], made[LANES][DIGEST];
    const uint8_t *lane[LANES];
    for (size_t first = 0; first < count; first += LANES) {
        const size_t filled = count - first < LANES ? count - first : LANES;
        for (size_t l = 0; l < LANES; l++) {
            const uint8_t *message = data + (l < filled ? first + l : first) * size;
            lane[l] = floats ? canonical(message, size, room[l]) : message;
        }
        hash_lanes(lane, size, p, made);
        memcpy(out + first * DIGEST, made, filled * DIGEST);
    }
}

/* Root of the tree over `bytes` > 0 bytes in leaves of `leaf` <= LONGEST bytes, f32 if `floats`; `digests` has room
 * for one digest more than there are leaves. */
WITH_SHA void tensor_root(const uint8_t *data, size_t bytes, size_t leaf, int floats, const uint8_t *prefix,
                          size_t prefix_size, uint8_t *digests, uint8_t *root) {
    const Prefix before_leaf = {prefix, prefix_size}, before_node = {(const uint8_t *)"\x01", 1};
    const size_t full = bytes / leaf, rest = bytes % leaf;
    uint8_t padding[2 * DIGEST] = {0};
    hash_all(data, full, leaf, floats, before_leaf, digests);
    if (rest) hash_all(data + full * leaf, 1, rest, floats, before_leaf, digests + full * DIGEST);
    for (size_t row = full + (rest > 0); row > 1; row = (row + 1) / 2) {
        if (row % 2) memcpy(digests + row * DIGEST, padding, DIGEST);
        hash_all(digests, (row + 1) / 2, 2 * DIGEST, 0, before_node, digests);
        memcpy(padding + DIGEST, padding, DIGEST);
        hash_all(padding, 1, 2 * DIGEST, 0, before_node, padding);
    }
    memcpy(root, digests, DIGEST);
}
