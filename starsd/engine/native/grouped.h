/* 4 bits: tiles of 16 outputs by 32 inputs, w = scale * q + least: 16 scales and 16 minima
 * (float16), then [quad][output][4], quads 4 to 7 in the high halves of quads 0 to 3. These are the
 * blocks of GGUF's Q4_1 without loss.
 *
 * Rows become bytes [rows, inputs] with a scale, and scale * sum, for each 32: [group, rows].
 * Sums of whole numbers are exact, and groups are added in order.
 */
#pragma once
#include "matrix.h"

enum { QUADS = GROUP / 4, HEADER = 2 * LANES * 2, TILE4 = HEADER + LANES * GROUP / 2 };

INLINE const uint8_t *grouped_at(const matrix *w, int column) {
    return w->tiles + (size_t)column * (w->inputs / GROUP) * TILE4;
}

INLINE void quantise_group(const float *x, int8_t *q, float *step, float *sum) {
    vi count = {0};
    const float top = largest(x, GROUP), factor = top > 0 ? 127 / top : 0;
    for (int i = 0; i < GROUP; i += 2 * VECTOR) {
        const vs whole = whole_of(x + i, splat(factor));
        narrow(whole, q + i);
        count += pairs_of(whole);
    }
    *step = top / 127;
    *sum = *step * (float)count_of(count);
}

INLINE void grouped_row(const float *x, int inputs, int row, activations *to) {
    for (int g = 0; g < inputs / GROUP; g++) {
        const size_t place = (size_t)g * to->rows + row;
        quantise_group(x + g * GROUP, (int8_t *)to->data + (size_t)row * inputs + g * GROUP,
                       to->scale + place, to->sum + place);
    }
}

/* Vector `part` of a tile's. */
INLINE void unpack(const uint8_t *tile, int part, vb quads[QUADS]) {
    const uint8_t *from = tile + HEADER + part * sizeof *quads;
    for (int i = 0; i < QUADS / 2; i++) {
        vb both;
        memcpy(&both, from + i * LANES * 4, sizeof both);
        quads[i] = both & 15;
        quads[i + QUADS / 2] = both >> 4;
    }
}

/* Of a row's bytes with weights. */
INLINE vi products_of(const vb quads[QUADS], const int8_t *q) {
#ifdef __AVX512VNNI__
    vi sum = {0};
    for (int j = 0; j < QUADS; j++) sum = dot4(sum, quads[j], q + 4 * j);
    return sum;
#else
    vs sum = {0}; /* at most 15 * 127 * 16 */
    for (int j = 0; j < QUADS; j++) sum += pairs_of_bytes(quads[j], q + 4 * j);
    return pairs_of(sum);
#endif
}

/* What a group adds to outputs of a row. */
INLINE vf add_group(vf sum, vi products, vf scale, vf least, const float *step, const float *total) {
    sum = fma_each(__builtin_convertvector(products, vf), scale * splat(*step), sum);
    return fma_each(least, splat(*total), sum);
}

/* 16 outputs of some rows, a constant number where this is inlined. */
INLINE void grouped_block(const product *p, int index, int first, int rows, upcoming next) {
    const matrix *w = p->w;
    const activations *x = p->x;
    const int inputs = w->inputs, column = column_of(p, index);
    const uint8_t *tile = grouped_at(w, column);
    const int8_t *row = (int8_t *)x->data + (size_t)first * inputs;
    const float *step = x->scale + first, *total = x->sum + first;
    vf sums[VECTORS][TALL];
    for (int v = 0; v < VECTORS; v++)
        for (int r = 0; r < rows; r++) sums[v][r] = bias_of(w, column, v);
    for (int g = 0; g < inputs; g += GROUP, tile += TILE4, step += x->rows, total += x->rows) {
        for (int i = 0; i < TILE4; i += 64) fetch_lines(&next);
        for (int v = 0; v < VECTORS; v++) {
            const _Float16 *facts = (const _Float16 *)tile + v * VECTOR;
            const vf scale = widen(facts), least = widen(facts + LANES);
            vb quads[QUADS];
            unpack(tile, v, quads);
            __asm__("" : "+r"(row)); /* else broadcasts of all rows are kept in memory */
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const vi products = products_of(quads, row + r * inputs + g);
                sums[v][r] = add_group(sums[v][r], products, scale, least, step + r, total + r);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) put(p, index, v, first + r, sums[v][r]);
}

#ifdef AMX
/* Tiles 0 to 2 are sums, rows and weights of a group, 3 to 5 of the next. */
static void shape_grouped(int rows) { shape_tiles(0x09, 0x12, rows, QUADS); }

INLINE void fetch_tile(const uint8_t *from) {
    for (int i = 0; i < TILE4; i += 64) __builtin_prefetch(from + HEADER + AHEAD + i);
}

/* Integer products of a group and the next one with 16 outputs, into products[0] and [1]. */
INLINE void multiply_pair(const uint8_t *tile, const uint8_t *q, int inputs, int two,
                          vi products[2][BLOCK]) {
    vb quads[2][QUADS];
    fetch_tile(tile);
    unpack(tile, 0, quads[0]);
    if (two) fetch_tile(tile + TILE4);
    if (two) unpack(tile + TILE4, 0, quads[1]);
    settle();
    _tile_zero(0);
    _tile_loadd(1, q, inputs);
    _tile_loadd(2, quads[0], 64);
    _tile_dpbsud(0, 1, 2);
    if (two) {
        _tile_zero(3);
        _tile_loadd(4, q + GROUP, inputs);
        _tile_loadd(5, quads[1], 64);
        _tile_dpbsud(3, 4, 5);
        _tile_stored(3, products[1], 64);
    }
    _tile_stored(0, products[0], 64);
    settle();
}

/* Like grouped_block, bit for bit; worth its overhead from five rows on. A pair of groups is added
 * while the next one is multiplied: a tile just stored is slow to read. The first `done` rows have
 * been put. */
INLINE void grouped_tiles(const product *p, int index, int first, int rows, int done) {
    const matrix *w = p->w;
    const activations *x = p->x;
    const int groups = w->inputs / GROUP, column = column_of(p, index);
    const uint8_t *tile = grouped_at(w, column);
    const uint8_t *q = x->data + (size_t)first * w->inputs;
    const float *step = x->scale + first, *total = x->sum + first;
    vf sum[BLOCK];
    vi products[2][2][BLOCK];
    for (int r = 0; r < rows; r++) sum[r] = bias_of(w, column, 0);
    multiply_pair(tile, q, w->inputs, groups > 1, products[0]);
    for (int g = 0; g < groups; g += 2, tile += 2 * TILE4) {
        if (g + 2 < groups)
            multiply_pair(tile + 2 * TILE4, q + (g + 2) * GROUP, w->inputs, g + 3 < groups,
                          products[(g / 2 + 1) % 2]);
        for (int i = 0; i < 2 && g + i < groups; i++) {
            const _Float16 *facts = (const _Float16 *)(tile + i * TILE4);
            vf scale = widen(facts), least = widen(facts + LANES);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++)
                sum[r] = add_group(sum[r], products[g / 2 % 2][i][r], scale, least, step + r,
                                   total + r);
            step += x->rows, total += x->rows;
        }
    }
    for (int r = done; r < rows; r++) put(p, index, 0, first + r, sum[r]);
}

static void grouped_tiled(const product *p, int from, int end) {
    const int rows = p->x->rows;
    shape_grouped(rows < BLOCK ? rows : BLOCK);
    for (; from < end; from++)
        for (int first = 0; first < rows; first += BLOCK) {
            const int start = block_start(first, rows);
            if (rows < BLOCK)
                grouped_tiles(p, from, 0, rows, 0);
            else
                grouped_tiles(p, from, start, BLOCK, first - start);
        }
}
#endif
