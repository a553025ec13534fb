/* Intel's tile registers: products of 16 rows with 16 outputs, one instruction. */
#pragma once
#include "vectors.h"
#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define AMX
#include <sys/syscall.h>
#include <unistd.h>

/* Linux grants the tile registers to processes that ask. */
static int amx_granted(void) {
    static int granted = -1;
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    if (granted < 0) granted = !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
    return granted;
}

/* gcc does not know that its tile instructions read and write memory. */
INLINE void settle(void) { __asm__ volatile("" ::: "memory"); }

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Fetches the kilobyte AHEAD, over all columns of a pass, of the one `at` bytes into a column of
 * `size`. After a column comes the one `next` further. */
INLINE void fetch(const uint8_t *column, size_t at, size_t size, int columns, int next) {
    const size_t soon = at + AHEAD / columns;
    const uint8_t *from = column + soon + (soon < size ? 0 : (next - 1) * size);
    __asm__("" : "+r"(from)); /* else compilers add up every address by itself */
    for (int i = 0; i < 1024; i += 64) __builtin_prefetch(from + i);
}

/* Sets of tiles, a bit each: sums are `rows` high, as are lines, `depth` lanes wide; the rest are
 * weights, `depth` high. */
static void shape_tiles(int sums, int lines, int rows, int depth) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        const int sum = sums >> i & 1, line = lines >> i & 1;
        shapes.rows[i] = (uint8_t)(sum || line ? rows : depth);
        shapes.bytes[i] = (uint16_t)(line ? depth * 4 : 64);
    }
    settle();
    _tile_loadconfig(&shapes);
}

/* Smaller to switch from, for the kernel. */
static void leave_tiles(void) {
    if (amx_granted()) _tile_release();
}
#else
INLINE void leave_tiles(void) {}
INLINE int amx_granted(void) { return 0; }
#endif
