/* Matrices in tiles of 16 outputs; those of the same outputs follow each other.
 *
 * bfloat16: 16 outputs by 32 inputs, [pair][output][2]. Rows are rounded to bfloat16.
 * 8 bits: 16 outputs by 64 inputs, [quad][output][4], each weight plus 128; a scale per output. Rows
 * become whole numbers of 15 bits with a scale per row, their high and low bytes apart, so that
 * what is lost is lost in the weights alone.
 * 4 bits: 16 outputs by 32 inputs, w = scale * q + least: 16 scales and 16 minima (float16), then
 * [quad][output][4], quads 4 to 7 in the high halves of quads 0 to 3. These are the blocks of
 * GGUF's Q4_1 without loss. Rows become bytes with a scale for each 32.
 *
 * A row's bits never depend on the rows beside it: whole numbers have exact sums, floats are summed
 * in one fixed order, and AMX sums bfloat16 the same way for one row as for 16.
 */
#pragma once
#include "vectors.h"
#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__linux__)
#define AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { GROUP = 32, QUADS = GROUP / 4, PAIRS = GROUP / 2, HEADER = 2 * LANES * 2 };
enum { DEEP = 64, BLOCK = 16, LEVELS = 127 * 128 };

typedef struct {
    int32_t bits, inputs, outputs;
    const uint8_t *tiles;
    const float *scale; /* of each output, of 8 bits only */
    const float *bias;  /* or NULL */
} matrix;

/* Rows as a matrix takes them: [rows, inputs] bfloat16; or high and low bytes [rows, inputs filled
 * up to 64s], with a scale and both sums per row; or bytes [rows, inputs], with a scale and
 * scale * sum per group. */
typedef struct {
    uint8_t *data, *low;
    float *scale, *sum;
    int32_t *sums; /* [rows, 2] */
} activations;

INLINE int deep(int inputs) { return (inputs + DEEP - 1) / DEEP * DEEP; }

INLINE const uint8_t *tiles_of(const matrix *w, int bits, int column) {
    size_t bytes = bits == 16  ? (size_t)w->inputs * LANES * 2
                   : bits == 8 ? (size_t)deep(w->inputs) * LANES
                               : (size_t)(w->inputs / GROUP) * (HEADER + LANES * GROUP / 2);
    return w->tiles + column * bytes;
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

/* bfloat16: 0 to 3 are sums of four columns, 4 rows, 5 and 6 weights. 8 bits: 0 and 1 are sums of a
 * column, 2 and 3 of the next, 4 and 5 rows, 6 and 7 weights. 4 bits: 0 to 2 are sums, rows and
 * weights of a group, 3 to 5 of the next. */
static void shape_tiles(int bits, int rows) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        const int weights = bits == 16 ? i > 4 : bits == 8 ? i > 5 : i % 3 == 2;
        shape(&shapes, i, weights ? (bits == 4 ? QUADS : 16) : rows, 64);
        if (bits == 4 && i % 3 == 1) shape(&shapes, i, rows, GROUP);
    }
    settle();
    _tile_loadconfig(&shapes);
}
#endif

/* ---- 4 bits -------------------------------------------------------------------------------- */

enum { TILE4 = HEADER + LANES * GROUP / 2 };

INLINE void unpack(const uint8_t *from, vb quads[QUADS]) {
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

/* 16 outputs of `rows` rows, a constant where this is inlined. */
INLINE void grouped_column(const matrix *w, int column, const activations *x, int first,
                           int rows, float *out) {
    const int groups = w->inputs / GROUP;
    const uint8_t *tile = tiles_of(w, 4, column);
    vf sum[BLOCK];
    for (int r = 0; r < rows; r++) sum[r] = bias_of(w, column);
    for (int g = 0; g < groups; g++, tile += TILE4) {
        vf scale = widen((const _Float16 *)tile), least = widen((const _Float16 *)tile + LANES);
        vb quads[QUADS];
        unpack(tile + HEADER, quads);
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

INLINE void grouped_rows(const matrix *w, int column, const activations *x, int first, int rows,
                         float *out) {
    const int end = first + rows;
    for (; end - first >= 16; first += 16) grouped_column(w, column, x, first, 16, out);
    if (end - first >= 8) grouped_column(w, column, x, first, 8, out), first += 8;
    if (end - first >= 4) grouped_column(w, column, x, first, 4, out), first += 4;
    if (end - first >= 2) grouped_column(w, column, x, first, 2, out), first += 2;
    if (end - first >= 1) grouped_column(w, column, x, first, 1, out);
}

#ifdef AMX
/* Integer products of a group and the next one with 16 outputs, into products[0] and [1]. */
INLINE void multiply_pair(const uint8_t *tile, const uint8_t *q, int inputs, int two,
                          vi products[2][BLOCK]) {
    vb quads[2][QUADS];
    unpack(tile + HEADER, quads[0]);
    if (two) unpack(tile + TILE4 + HEADER, quads[1]);
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
INLINE void grouped_tiles(const matrix *w, int column, const activations *x, int first, int rows,
                          float *out) {
    const int groups = w->inputs / GROUP, size = TILE4;
    const uint8_t *tile = tiles_of(w, 4, column);
    const uint8_t *q = x->data + (size_t)first * w->inputs;
    vf sum[BLOCK];
    vi products[2][2][BLOCK];
    for (int r = 0; r < rows; r++) sum[r] = bias_of(w, column);
    multiply_pair(tile, q, w->inputs, groups > 1, products[0]);
    for (int g = 0; g < groups; g += 2, tile += 2 * size) {
        if (g + 2 < groups)
            multiply_pair(tile + 2 * size, q + (g + 2) * GROUP, w->inputs, g + 3 < groups,
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

/* ---- 8 bits -------------------------------------------------------------------------------- */

/* From sums over both bytes of a row to 16 outputs of it. */
INLINE vf scaled(const matrix *w, int column, const activations *x, int row, vi high, vi low) {
    high -= x->sums[2 * row] * 128, low -= x->sums[2 * row + 1] * 128;
    vf whole = fma16(__builtin_convertvector(high, vf), splat(128),
                     __builtin_convertvector(low, vf));
    return fma16(whole, load(w->scale + column * LANES) * splat(x->scale[row]), bias_of(w, column));
}

INLINE void whole_column(const matrix *w, int column, const activations *x, int first, int rows,
                         float *out) {
    const int inputs = deep(w->inputs);
    for (int r = first; r < first + rows; r++) {
        const uint8_t *tile = tiles_of(w, 8, column);
        const size_t row = (size_t)r * inputs;
        vi high = {0}, low = {0};
        for (int i = 0; i < inputs; i += 4, tile += sizeof(vb)) {
            vb quads;
            memcpy(&quads, tile, sizeof quads);
            high = dot4(high, quads, (int8_t *)x->data + row + i);
            low = dot4(low, quads, (int8_t *)x->low + row + i);
        }
        store(out + (size_t)r * w->outputs + column * LANES, scaled(w, column, x, r, high, low));
    }
}

#ifdef AMX
/* One or two columns, like whole_column bit for bit. */
INLINE void whole_tiles(const matrix *w, int column, int columns, const activations *x, int first,
                        int rows, float *out) {
    const int inputs = deep(w->inputs);
    const uint8_t *tile = tiles_of(w, 8, column), *next = tiles_of(w, 8, column + 1);
    const uint8_t *high = x->data + (size_t)first * inputs, *low = x->low + (size_t)first * inputs;
    vi sums[4][BLOCK];
    settle();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < inputs; i += DEEP) {
        _tile_loadd(4, high + i, inputs);
        _tile_loadd(5, low + i, inputs);
        _tile_loadd(6, tile + (size_t)i * LANES, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 5, 6);
        if (columns < 2) continue;
        _tile_loadd(7, next + (size_t)i * LANES, 64);
        _tile_dpbsud(2, 4, 7);
        _tile_dpbsud(3, 5, 7);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
    settle();
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            store(out + (size_t)(first + r) * w->outputs + (column + c) * LANES,
                  scaled(w, column + c, x, first + r, sums[2 * c][r], sums[2 * c + 1][r]));
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
    const size_t size = (size_t)w->inputs * LANES * 2, line = w->inputs * 2;
    const uint8_t *tile = tiles_of(w, 16, column), *row = x->data + first * line;
    settle();
    _tile_zero(0);
    if (columns == 4) {
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int g = 0; g < w->inputs / GROUP; g++, tile += GROUP * LANES * 2, row += 2 * GROUP) {
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

/* Up to 16 rows of up to four columns. */
static void multiply_block(const matrix *w, int tiled, int column, int columns,
                           const activations *x, int first, int rows, float *out) {
    const int end = column + columns;
#ifdef AMX
    if (tiled && w->bits == 16 && columns == 4) {
        brain_tiles(w, column, 4, x, first, rows, out);
        return;
    }
    for (; tiled && w->bits == 8 && end - column >= 2; column += 2)
        whole_tiles(w, column, 2, x, first, rows, out);
#endif
    for (; column < end; column++)
#ifdef AMX
        if (tiled && w->bits == 16)
            brain_tiles(w, column, 1, x, first, rows, out);
        else if (tiled && w->bits == 8)
            whole_tiles(w, column, 1, x, first, rows, out);
        else if (tiled)
            grouped_tiles(w, column, x, first, rows, out);
        else
#endif
            if (w->bits == 16)
            brain_column(w, column, x, first, rows, out);
        else if (w->bits == 8)
            whole_column(w, column, x, first, rows, out);
        else
            grouped_rows(w, column, x, first, rows, out);
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
    tiled = (w->bits > 4 || rows > 4) && amx_granted();
#endif
#pragma omp parallel num_threads(threads)
    {
#ifdef AMX
        if (tiled) shape_tiles(w->bits, some);
#endif
#pragma omp for
        for (int column = 0; column < columns; column += 4)
            for (int first = 0; first < rows; first += BLOCK)
                multiply_block(w, tiled, column, columns - column < 4 ? columns - column : 4, x,
                               block_start(first, rows), some, out);
#ifdef AMX
        if (tiled) _tile_release();
#endif
    }
}

/* ---- rows in and out ----------------------------------------------------------------------- */

INLINE vi nearest(vf x) {
    const vf magic = splat(12582912.0f); /* adding it rounds to an integer */
    return __builtin_convertvector((x + magic) - magic, vi);
}

INLINE void narrow(vi x, int8_t *to) {
#ifdef __AVX512F__
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)x));
#else
    for (int i = 0; i < LANES; i++) to[i] = (int8_t)x[i];
#endif
}

static void quantise_group(const float *x, int i, activations *to) {
    vf low = load(x), high = load(x + LANES);
    float top = max_of(max16(max16(low, -low), max16(high, -high)));
    vf factor = splat(top > 0 ? 127 / top : 0);
    int8_t *q = (int8_t *)to->data + (size_t)i * GROUP;
    vi first = nearest(low * factor), second = nearest(high * factor);
    narrow(first, q), narrow(second, q + LANES);
    to->scale[i] = top / 127;
    to->sum[i] = to->scale[i] * (float)count_of(first + second);
}

static void split_row(const float *x, int inputs, int row, activations *to) {
    int8_t *high = (int8_t *)to->data + (size_t)row * deep(inputs);
    int8_t *low = (int8_t *)to->low + (size_t)row * deep(inputs);
    vf top = {0};
    for (int i = 0; i < inputs; i += LANES) top = max16(top, max16(load(x + i), -load(x + i)));
    const float most = max_of(top), factor = most > 0 ? LEVELS / most : 0;
    vi sums[2] = {{0}, {0}};
    for (int i = 0; i < inputs; i += LANES) {
        vi whole = nearest(load(x + i) * splat(factor)), upper = (whole + 64) >> 7;
        narrow(upper, high + i), narrow(whole - (upper << 7), low + i);
        sums[0] += upper, sums[1] += whole - (upper << 7);
    }
    memset(high + inputs, 0, deep(inputs) - inputs);
    memset(low + inputs, 0, deep(inputs) - inputs);
    to->scale[row] = most / LEVELS;
    for (int i = 0; i < 2; i++) to->sums[2 * row + i] = count_of(sums[i]);
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
    for (int r = 0; r < rows && bits == 8; r++) split_row(x + (size_t)r * inputs, inputs, r, to);
    for (int i = 0; i < rows * (inputs / GROUP) && bits != 8; i++)
        if (bits == 16)
            round_group(x + (size_t)i * GROUP, to->data + (size_t)i * GROUP * 2);
        else
            quantise_group(x + (size_t)i * GROUP, i, to);
}

/* Row `index` of a matrix of 8 or 16 bits, as floats. */
static void row_of(const matrix *w, int index, float *out) {
    const uint8_t *tiles = tiles_of(w, w->bits, index / LANES);
    const int lane = index % LANES;
    for (int i = 0; i < w->inputs; i++)
        if (w->bits == 16)
            out[i] = brain(tiles, (i / 2 * LANES + lane) * 2 + i % 2);
        else
            out[i] = (tiles[(i / 4 * LANES + lane) * 4 + i % 4] - 128) * w->scale[index];
}
