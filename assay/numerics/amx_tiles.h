/* The six tile instructions that product_amx.c needs; with -DSHIM as plain C.
 *
 * The plain form follows the instruction set reference: a tile is up to 16 rows of up to 64 bytes as configured;
 * loads zero what lies beyond; TDPBSSD adds four signed byte products to each i32, wrapping. */
#include <stdint.h>
#include <string.h>
#ifndef SHIM
#include <immintrin.h>
/* GCC's (12) intrinsics say too little: LDTILECFG that it reads 8 bytes, TILELOADD that it reads nothing. So a
 * `tile_barrier` has to stand before tiles are loaded: what was stored is then in memory. */
#define tile_barrier() __asm__ volatile("" ::: "memory")
#define tile_config(at)                                                                                                \
    do {                                                                                                               \
        tile_barrier();                                                                                                \
        _tile_loadconfig(at);                                                                                          \
    } while (0)
#define tile_release() _tile_release()
#define tile_zero(t) _tile_zero(t)
#define tile_load_once(t, at, step) _tile_stream_loadd(t, at, step) /* TILELOADDT1: past the first cache */
#define tile_store(t, at, step) _tile_stored(t, at, step)
#define tile_dot(c, a, b) _tile_dpbssd(c, a, b)
#else
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shape;
static _Thread_local tile_shape shim_shape;
static _Thread_local uint8_t shim_tile[8][16][64];
static inline void tile_config(const void *at) {
    memcpy(&shim_shape, at, sizeof shim_shape);
    memset(shim_tile, 0, sizeof shim_tile);
}
static inline void tile_release(void) {
    memset(&shim_shape, 0, sizeof shim_shape);
    memset(shim_tile, 0xa5, sizeof shim_tile);
}
static inline void tile_zero(int t) { memset(shim_tile[t], 0, sizeof shim_tile[t]); }
static inline void tile_load_once(int t, const void *at, int64_t step) {
    if (shim_shape.palette != 1) __builtin_trap(); /* as #UD: no configuration */
    memset(shim_tile[t], 0, sizeof shim_tile[t]);
    for (int r = 0; r < shim_shape.rows[t]; r++)
        memcpy(shim_tile[t][r], (const char *)at + r * step, shim_shape.bytes[t]);
}
static inline void tile_store(int t, void *at, int64_t step) {
    if (shim_shape.palette != 1) __builtin_trap();
    for (int r = 0; r < shim_shape.rows[t]; r++) memcpy((char *)at + r * step, shim_tile[t][r], shim_shape.bytes[t]);
}
static inline void tile_dot(int c, int a, int b) {
    const tile_shape *s = &shim_shape;
    if (s->palette != 1 || s->rows[b] != s->bytes[a] / 4 || s->rows[c] != s->rows[a] || s->bytes[c] != s->bytes[b])
        __builtin_trap();
    for (int m = 0; m < s->rows[a]; m++)
        for (int n = 0; n < s->bytes[c] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, shim_tile[c][m] + 4 * n, 4);
            for (int k = 0; k < s->bytes[a]; k++)
                sum += (uint32_t)((int8_t)shim_tile[a][m][k] * (int8_t)shim_tile[b][k / 4][4 * n + k % 4]);
            memcpy(shim_tile[c][m] + 4 * n, &sum, 4);
        }
}
#define tile_barrier() ((void)0)
#endif
