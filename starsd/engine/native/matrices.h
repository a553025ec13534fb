/* Matrices in tiles of 16 outputs by 32 inputs; those of the same outputs follow each other.
 *
 * Of 4 and 8 bits, a tile is quantised: w = scale * q + least, with 16 scales and 16 minima
 * (float16), then the integers: of 8 bits [quad][output][4], of 4 bits the same with quads 4 to 7
 * in the high halves of quads 0 to 3. These are the blocks of GGUF's Q4_1 and Q8_0 without loss.
 * Rows are quantised on the fly, with a scale for each group of 32.
 * Of 16 bits, it is bfloat16: [pair][output][2]. Rows are rounded to bfloat16.
 *
 * A row's bits never depend on the rows beside it: sums inside a group are whole numbers, sums of
 * groups run in one fixed order, and AMX sums bfloat16 the same way for one row as for 16.
 */
#pragma once
#include "vectors.h"
#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
#define AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { GROUP = 32, QUADS = GROUP / 4, PAIRS = GROUP / 2, HEADER = 2 * LANES * 2, BLOCK = 16 };

typedef struct {
    int32_t bits, inputs, outputs;
    const uint8_t *tiles;
    const float *bias; /* or NULL */
} matrix;

/* Rows as a matrix takes them: [rows, inputs] int8, with a scale and scale * sum per group, or
 * [rows, inputs] bfloat16. */
typedef struct {
    uint8_t *data;
    float *scale, *sum;
} activations;

INLINE int tile_bytes(int bits) { return (bits < 16 ? HEADER : 0) + LANES * GROUP * bits / 8; }

INLINE const uint8_t *tiles_of(const matrix *w, int bits, int column) {
    return w->tiles + (size_t)column * (w->inputs / GROUP) * tile_bytes(bits);
}

INLINE vf bias_of(const matrix *w, int column) {
    return w->bias ? load(w->bias + column * LANES) : splat(0);
}

/* ---- AMX ----------------------------------------------------------------------------------- */

#ifdef AMX
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Linux grants the tile registers to processes that ask. */
static int amx_granted(void) {
    static int granted = -1;
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    if (granted < 0) granted = !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
    return granted;
}

/* gcc does not know that its tile instructions read and write memory. */
INLINE void settle(void) { __asm__ volatile("" ::: "memory"); }

static void shape(tile_shapes *to, int tile, int rows, int bytes) {
    to->rows[tile] = (uint8_t)rows, to->bytes[tile] = (uint16_t)bytes;
}

/* Quantised: 0 to 2 are sums, rows and weights of a group, 3 to 5 of the next one.
 * bfloat16: 0 to 3 are sums of four columns, 4 the rows, 5 and 6 weights. */
static void shape_tiles(int bits, int rows) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 6 && bits < 16; i += 3) {
        shape(&shapes, i, rows, 64), shape(&shapes, i + 1, rows, GROUP);
        shape(&shapes, i + 2, QUADS, 64);
    }
    for (int i = 0; i < 5 && bits == 16; i++) shape(&shapes, i, rows, 64);
    for (int i = 5; i < 7 && bits == 16; i++) shape(&shapes, i, PAIRS, 64);
    settle();
    _tile_loadconfig(&shapes);
}
#endif

/* ---- 4 and 8 bits -------------------------------------------------------------------------- */

INLINE void unpack(const uint8_t *from, int bits, vb quads[QUADS]) {
    if (bits == 8) {
        memcpy(quads, from, sizeof(vb) * QUADS);
        return;
    }
    for (int i = 0; i < QUADS / 2; i++) {
        vb both;
        memcpy(&both, from + i * sizeof both, sizeof both);
        quads[i] = both & 15;
        quads[i + QUADS / 2] = both >> 4;
    }
}

/* What a group adds to 16 outputs of a row. */
INLINE vf add_group(vf sum, vi products, vf scale, vf least, const activations *x, int place) {
    sum = fma16(__builtin_convertvector(products, vf), scale * splat(x->scale[place]), sum);
    return fma16(least, splat(x->sum[place]), sum);
}

/* 16 outputs of `rows` rows; `bits` and `rows` are constants where this is inlined. */
INLINE void grouped_column(const matrix *w, int bits, int column, const activations *x, int first,
                           int rows, float *out) {
    const int groups = w->inputs / GROUP;
    const uint8_t *tile = tiles_of(w, bits, column);
    vf sum[BLOCK];
    for (int r = 0; r < rows; r++) sum[r] = bias_of(w, column);
    for (int g = 0; g < groups; g++, tile += tile_bytes(bits)) {
        vf scale = widen((const _Float16 *)tile), least = widen((const _Float16 *)tile + LANES);
        vb quads[QUADS];
        unpack(tile + HEADER, bits, quads);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const int8_t *q = (int8_t *)x->data + (size_t)(first + r) * w->inputs + g * GROUP;
            vi products = {0};
            for (int j = 0; j < QUADS; j++) products = dot4(products, quads[j], q + 4 * j);
            sum[r] = add_group(sum[r], products, scale, least, x, (first + r) * groups + g);
        }
    }
    for (int r = 0; r < rows; r++)
        store(out + (size_t)(first + r) * w->outputs + column * LANES, sum[r]);
}

INLINE void grouped_rows(const matrix *w, int bits, int column, const activations *x, int first,
                         int rows, float *out) {
    const int end = first + rows;
    for (; end - first >= 16; first += 16) grouped_column(w, bits, column, x, first, 16, out);
    if (end - first >= 8) grouped_column(w, bits, column, x, first, 8, out), first += 8;
    if (end - first >= 4) grouped_column(w, bits, column, x, first, 4, out), first += 4;
    if (end - first >= 2) grouped_column(w, bits, column, x, first, 2, out), first += 2;
    if (end - first >= 1) grouped_column(w, bits, column, x, first, 1, out);
}

#ifdef AMX
/* Integer products of a group and the next one with 16 outputs, into products[0] and [1]. */
INLINE void multiply_pair(const uint8_t *tile, int bits, const uint8_t *q, int inputs, int two,
                          vi products[2][BLOCK]) {
    vb quads[2][QUADS];
    unpack(tile + HEADER, bits, quads[0]);
    if (two) unpack(tile + tile_bytes(bits) + HEADER, bits, quads[1]);
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

/* Like grouped_column, bit for bit; worth its overhead from five rows on. A pair of groups is added
 * while the next one is multiplied: a tile just stored is slow to read. */
INLINE void grouped_tiles(const matrix *w, int bits, int column, const activations *x, int first,
                          int rows, float *out) {
    const int groups = w->inputs / GROUP, size = tile_bytes(bits);
    const uint8_t *tile = tiles_of(w, bits, column);
    const uint8_t *q = x->data + (size_t)first * w->inputs;
    vf sum[BLOCK];
    vi products[2][2][BLOCK];
    for (int r = 0; r < rows; r++) sum[r] = bias_of(w, column);
    multiply_pair(tile, bits, q, w->inputs, groups > 1, products[0]);
    for (int g = 0; g < groups; g += 2, tile += 2 * size) {
        if (g + 2 < groups)
            multiply_pair(tile + 2 * size, bits, q + (g + 2) * GROUP, w->inputs, g + 3 < groups,
                          products[(g / 2 + 1) % 2]);
        for (int i = 0; i < 2 && g + i < groups; i++) {
            const _Float16 *facts = (const _Float16 *)(tile + i * size);
            vf scale = widen(facts), least = widen(facts + LANES);
            for (int r = 0; r < rows; r++)
                sum[r] = add_group(sum[r], products[g / 2 % 2][i][r], scale, least, x,
                                   (first + r) * groups + g + i);
        }
    }
    for (int r = 0; r < rows; r++)
        store(out + (size_t)(first + r) * w->outputs + column * LANES, sum[r]);
}
#endif

/* ---- bfloat16 ------------------------------------------------------------------------------ */

/* Float of the lower or upper half of each lane. */
INLINE vf half_of(vi pairs, int upper) {
    return (vf)(upper ? pairs & (int32_t)0xffff0000 : pairs << 16);
}

INLINE float brain(const uint8_t *x, int index) {
    uint16_t half;
    memcpy(&half, x + 2 * index, sizeof half);
    uint32_t whole = (uint32_t)half << 16;
    float value;
    memcpy(&value, &whole, sizeof value);
    return value;
}

INLINE void brain_column(const matrix *w, int column, const activations *x, int first, int rows,
                         float *out) {
    for (int r = first; r < first + rows; r++) {
        const uint8_t *row = x->data + (size_t)r * w->inputs * 2;
        const uint8_t *tile = tiles_of(w, 16, column);
        vf even = bias_of(w, column), odd = splat(0);
        for (int i = 0; i < w->inputs; i += 2, tile += sizeof(vi)) {
            vi pairs;
            memcpy(&pairs, tile, sizeof pairs);
            even = fma16(half_of(pairs, 0), splat(brain(row, i)), even);
            odd = fma16(half_of(pairs, 1), splat(brain(row, i + 1)), odd);
        }
        store(out + (size_t)r * w->outputs + column * LANES, even + odd);
    }
}

#ifdef AMX
/* One or four columns; their sums stay in tile registers to the end. */
INLINE void brain_tiles(const matrix *w, int column, int columns, const activations *x, int first,
                        int rows, float *out) {
    const size_t size = (size_t)(w->inputs / GROUP) * tile_bytes(16), line = w->inputs * 2;
    const uint8_t *tile = tiles_of(w, 16, column), *row = x->data + first * line;
    settle();
    _tile_zero(0);
    if (columns == 4) {
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int g = 0; g < w->inputs / GROUP; g++, tile += tile_bytes(16), row += 2 * GROUP) {
        _tile_loadd(4, row, line);
        _tile_loadd(5, tile, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (columns < 4) continue;
        _tile_loadd(6, tile + size, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, tile + 2 * size, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, tile + 3 * size, 64);
        _tile_dpbf16ps(3, 4, 6);
    }
    out += (size_t)first * w->outputs + column * LANES;
    const size_t stride = w->outputs * sizeof(float);
    _tile_stored(0, out, stride);
    if (columns == 4) {
        _tile_stored(1, out + LANES, stride);
        _tile_stored(2, out + 2 * LANES, stride);
        _tile_stored(3, out + 3 * LANES, stride);
    }
    settle();
    for (int r = 0; r < rows && w->bias; r++, out += w->outputs)
        for (int c = 0; c < columns; c++)
            store(out + c * LANES, load(out + c * LANES) + bias_of(w, column + c));
}
#endif

/* ---- any ----------------------------------------------------------------------------------- */

/* Up to 16 rows of one or four columns. */
static void multiply_block(const matrix *w, int tiled, int column, int columns,
                           const activations *x, int first, int rows, float *out) {
#ifdef AMX
    if (tiled && w->bits == 16) {
        brain_tiles(w, column, columns, x, first, rows, out);
        return;
    }
#endif
    for (int c = column; c < column + columns; c++)
        if (w->bits == 16)
            brain_column(w, c, x, first, rows, out);
#ifdef AMX
        else if (tiled && w->bits == 8)
            grouped_tiles(w, 8, c, x, first, rows, out);
        else if (tiled)
            grouped_tiles(w, 4, c, x, first, rows, out);
#endif
        else if (w->bits == 8)
            grouped_rows(w, 8, c, x, first, rows, out);
        else
            grouped_rows(w, 4, c, x, first, rows, out);
}

/* The last block of 16 rows begins early rather than being short: same bits, one shape. */
INLINE int block_start(int first, int rows) {
    return first + BLOCK > rows && rows > BLOCK ? rows - BLOCK : first;
}

/* out [rows, outputs] = x w^T + bias. Weights come from memory once, whatever the rows. */
static void multiply(const matrix *w, const activations *x, int rows, int threads, float *out) {
    const int columns = w->outputs / LANES, some = rows < BLOCK ? rows : BLOCK;
    int tiled = 0;
    if (!rows) return;
#ifdef AMX
    tiled = (w->bits == 16 || rows > 4) && amx_granted();
#endif
#pragma omp parallel num_threads(threads)
    {
#ifdef AMX
        if (tiled) shape_tiles(w->bits, some);
#endif
#pragma omp for
        for (int column = 0; column < columns; column += 4) {
            const int four = columns - column >= 4;
            for (int first = 0; first < rows; first += BLOCK)
                for (int c = column; c < columns && c < column + 4; c += four ? 4 : 1)
                    multiply_block(w, tiled, c, four ? 4 : 1, x, block_start(first, rows), some,
                                   out);
        }
#ifdef AMX
        if (tiled) _tile_release();
#endif
    }
}

/* ---- rows in and out ----------------------------------------------------------------------- */

/* The nearest whole numbers of 16 floats as bytes; returns them as lanes too. */
INLINE vi whole16(vf x, int8_t *to) {
    const vf magic = splat(12582912.0f); /* adding it rounds to an integer */
    vi whole = __builtin_convertvector((x + magic) - magic, vi);
#ifdef __AVX512F__
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)whole));
#else
    for (int i = 0; i < LANES; i++) to[i] = (int8_t)whole[i];
#endif
    return whole;
}

static void quantise_group(const float *x, int i, activations *to) {
    vf low = load(x), high = load(x + LANES);
    float top = max_of(max16(max16(low, -low), max16(high, -high)));
    vf factor = splat(top > 0 ? 127 / top : 0);
    int8_t *q = (int8_t *)to->data + (size_t)i * GROUP;
    vi sum = whole16(low * factor, q) + whole16(high * factor, q + LANES);
    to->scale[i] = top / 127;
    to->sum[i] = to->scale[i] * (float)count_of(sum);
}

/* To bfloat16, ties to even. */
static void round_group(const float *x, uint8_t *to) {
    for (int i = 0; i < GROUP; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        uint16_t half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* x [rows, inputs] for matrices of so many bits. */
static void prepare(const float *x, int bits, int rows, int inputs, activations *to) {
    for (int i = 0; i < rows * (inputs / GROUP); i++)
        if (bits == 16)
            round_group(x + (size_t)i * GROUP, to->data + (size_t)i * GROUP * 2);
        else
            quantise_group(x + (size_t)i * GROUP, i, to);
}

INLINE float weight_of(const uint8_t *tile, int bits, int lane, int input) {
    if (bits == 16) return brain(tile, (input / 2 * LANES + lane) * 2 + input % 2);
    const _Float16 *facts = (const _Float16 *)tile;
    vb quads[QUADS];
    unpack(tile + HEADER, bits, quads);
    float q = quads[input / 4][4 * lane + input % 4];
    return (float)facts[lane] * q + (float)facts[LANES + lane];
}

/* Row `index` of a matrix, as floats. */
static void row_of(const matrix *w, int index, float *out) {
    const uint8_t *tile = tiles_of(w, w->bits, index / LANES);
    for (int i = 0; i < w->inputs; i++)
        out[i] = weight_of(tile + (size_t)(i / GROUP) * tile_bytes(w->bits), w->bits,
                           index % LANES, i % GROUP);
}
