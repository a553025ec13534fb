/* bfloat16: tiles of 16 outputs by 32 inputs, [pair][output][2]. Rows are rounded to bfloat16.
 *
 * AMX sums the same way for one row as for 16.
 */
#pragma once
#include "matrix.h"

/* Columns at once. */
#ifdef __AVX512BF16__
enum { BRAINS = WIDE };
#else
enum { BRAINS = WIDENED / VECTORS };
#endif

INLINE const uint8_t *brain_at(const matrix *w, int column) {
    return w->tiles + (size_t)column * w->inputs * LANES * 2;
}

INLINE void brain_row(const float *x, int inputs, int row, activations *to) {
    brief_t *out = (brief_t *)to->data + (size_t)row * inputs;
    for (int i = 0; i < inputs; i += VECTOR) brief_to(load(x + i), out + i);
}

INLINE float brain(const uint8_t *x, int index) {
    uint16_t half;
    memcpy(&half, x + 2 * index, sizeof half);
    uint32_t whole = (uint32_t)half << 16;
    float value;
    memcpy(&value, &whole, sizeof value);
    return value;
}

/* Some columns of some rows, both constants where this is inlined. */
INLINE void brain_block(const product *p, int index, int columns, int first, int rows,
                        upcoming next) {
    const matrix *w = p->w;
    const int inputs = w->inputs, vectors = columns * VECTORS;
    const brief_t *row = (const brief_t *)p->x->data + (size_t)first * inputs;
    const uint8_t *tile[BRAINS * VECTORS];
    vf sums[BRAINS * VECTORS][TALL];
    for (int v = 0; v < vectors; v++) {
        const int column = column_of(p, index + v / VECTORS);
        tile[v] = brain_at(w, column) + v % VECTORS * sizeof(vi);
        for (int r = 0; r < rows; r++) sums[v][r] = bias_of(w, column, v % VECTORS);
    }
    for (int i = 0; i < inputs; i += 2, row += 2) {
        vi pairs[BRAINS * VECTORS];
        for (int v = 0; v < vectors; v++)
            memcpy(pairs + v, tile[v] + i * LANES * 2, sizeof *pairs);
        fetch_lines(&next);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++)
                sums[v][r] = dot2(sums[v][r], pairs[v], row + r * inputs);
    }
    for (int r = 0; r < rows; r++) {
        vf values[BRAINS * VECTORS];
        for (int v = 0; v < vectors; v++) values[v] = sums[v][r];
        put_columns(p, index, columns, first + r, values);
    }
}

#ifdef AMX
/* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights. */
static void shape_brain(int rows) { shape_tiles(0x0f, 0x30, rows, 16); }

/* Every row of a sum begins with the bias. */
#define BEGIN(tile, column)                                   \
    do {                                                      \
        if (w->bias)                                          \
            _tile_loadd(tile, w->bias + (column) * LANES, 0); \
        else                                                  \
            _tile_zero(tile);                                 \
    } while (0)

INLINE void brain_put(const product *p, int columns, results *r, int rows) {
    const int end = until(r, rows);
    for (int i = r->next; i < end; i++) {
        const int block = i / BLOCK, at = i % BLOCK + block * r->skip;
        vf values[4];
        for (int c = 0; c < columns; c++) values[c] = (vf)r->sums[2 * block + c][at];
        put_columns(p, r->index, columns, r->first[block] + at, values);
    }
    r->next = end;
}

/* 1, 2 or 4 columns of a block of rows, or 1 or 2 of two blocks; meanwhile `before` is put. */
INLINE void brain_tiles(const product *p, int columns, int blocks, results *r, results *before) {
    const matrix *w = p->w;
    const size_t size = (size_t)w->inputs * LANES * 2, line = w->inputs * 2;
    const int next = onward_by(p, columns), fresh = !r->first[0];
    const int rows = pace(before, w->inputs / 32);
    const uint8_t *row = p->x->data + r->first[0] * line, *other = p->x->data + r->first[1] * line;
    const uint8_t *tile[4];
    int column[4];
    for (int c = 0; c < columns; c++) {
        column[c] = column_of(p, r->index + c);
        tile[c] = brain_at(w, column[c]);
    }
    settle();
    BEGIN(0, column[0]);
    if (columns > 1) BEGIN(1, column[1]);
    if (columns == 4 || blocks == 2) BEGIN(2, column[columns == 4 ? 2 : 0]);
    if (columns == 4 || (blocks == 2 && columns == 2)) BEGIN(3, column[columns - 1]);
    for (size_t at = 0; at < size; at += 1024, row += 64, other += 64) {
        brain_put(p, columns, before, rows);
        settle();
        _tile_loadd(4, row, line);
        if (blocks == 2) _tile_loadd(5, other, line);
        if (fresh) fetch(tile[0], at, size, columns, next);
        _tile_loadd(6, tile[0] + at, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (blocks == 2) _tile_dpbf16ps(2, 5, 6);
        if (columns == 1) continue;
        if (fresh) fetch(tile[1], at, size, columns, next);
        _tile_loadd(7, tile[1] + at, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (blocks == 2) _tile_dpbf16ps(3, 5, 7);
        if (columns == 2) continue;
        if (fresh) fetch(tile[2], at, size, columns, next);
        _tile_loadd(6, tile[2] + at, 64);
        _tile_dpbf16ps(2, 4, 6);
        if (fresh) fetch(tile[3], at, size, columns, next);
        _tile_loadd(7, tile[3] + at, 64);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, r->sums[0], 64);
    if (columns > 1) _tile_stored(1, r->sums[1], 64);
    if (columns == 4 || blocks == 2) _tile_stored(2, r->sums[2], 64);
    if (columns == 4 || (blocks == 2 && columns == 2)) _tile_stored(3, r->sums[3], 64);
    settle();
}

/* `columns` at a time, a constant where this is inlined; returns where it stopped. */
INLINE int brain_pass(const product *p, int from, int end, int columns) {
    const int rows = p->x->rows;
    results both[2], *r = both, *before = both + 1;
    before->next = before->end = 0;
    for (; end - from >= columns; from += columns)
        for (int first = 0; first < rows; first += 2 * BLOCK) {
            if (columns < 4 && first + BLOCK < rows) {
                begin(r, from, first, 2, rows);
                brain_tiles(p, columns, 2, r, before);
            } else {
                begin(r, from, first, 1, rows);
                brain_tiles(p, columns, 1, r, before);
            }
            results *done = r;
            r = before, before = done;
        }
    brain_put(p, columns, before, rows);
    return from;
}

static void brain_tiled(const product *p, int from, int end) {
    const int rows = p->x->rows;
    shape_brain(rows < BLOCK ? rows : BLOCK);
    from = rows <= BLOCK ? brain_pass(p, from, end, 4) : brain_pass(p, from, end, 2);
    brain_pass(p, from, end, 1);
}
#endif
