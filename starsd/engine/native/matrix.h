/* A matrix in tiles of 16 outputs, and rows to multiply with it. */
#pragma once
#include "amx.h"

enum { GROUP = 32, BLOCK = 16 };


typedef struct {
    int32_t bits, inputs, outputs;
    const uint8_t *tiles;
    const float *scale; /* of each output, of 8 bits only */
    const float *bias;  /* or NULL */
} matrix;

/* As a matrix of so many bits takes them. */
typedef struct {
    int32_t rows;
    uint8_t *data, *low;
    float *scale, *sum;
    int32_t *begin; /* [2, rows, 16], of 8 bits only: what sums of the high and low bytes start from */
} activations;

/* Of vector `part` of a column. */
INLINE vf bias_of(const matrix *w, int column, int part) {
    return w->bias ? load(w->bias + column * LANES + part * VECTOR) : splat(0);
}

/* What becomes of a result. GATED: the first half of the outputs are gates, and silu(gate) times
 * the output that far behind it is put. */
enum { PUT, ADDED, GATED };

/* Rows times a matrix, into `out` [rows, stride]. */
typedef struct {
    const matrix *w;
    const activations *x;
    float *out;
    int stride, how;
} product;

/* Weights to come while a block of rows is computed, in two streams: so many bytes of each with 64
 * of a column. */
typedef struct {
    const uint8_t *one, *other;
    int pace;
} upcoming;

/* Into the second cache: the first one is too small for what is in use and what comes, and where a
 * processor waits for all that it is to hold, computing waits, too. */
INLINE void fetch_line(const uint8_t *at) { __builtin_prefetch(at, 0, 2); }

/* Hardly more than a line at a time: processors stop where too many are on their way. */
INLINE void fetch_lines(upcoming *u) {
    fetch_line(u->one);
    fetch_line(u->other);
    if (u->pace > 64) {
        fetch_line(u->one + 64);
        fetch_line(u->other + 64);
    }
    u->one += u->pace, u->other += u->pace;
}

/* The column of outputs that is computed at `index`: gates come right before what they open. */
INLINE int column_of(const product *p, int index) {
    const int half = p->w->outputs / LANES / 2;
    return p->how == GATED ? index / 2 + index % 2 * half : index;
}

INLINE vf silu(vf x) {
    return x * inverse_each(splat(1) + power_each(min_each(x * splat(-LOG2_E), splat(120))));
}

/* Vector `part` of 16 outputs of a row. */
INLINE void put(const product *p, int index, int part, int row, vf value) {
    const int place = p->how == GATED ? index / 2 : index;
    float *out = p->out + (size_t)row * p->stride + place * LANES + part * VECTOR;
    if (p->how == ADDED) value = load(out) + value;
    if (p->how == GATED && index % 2) value = silu(load(out)) * value;
    store(out, value);
}

/* 16 outputs of a row in each of `columns`, a constant where this is inlined. */
INLINE void put_columns(const product *p, int index, int columns, int row, const vf *values) {
    if (p->how == GATED && columns > 1) {
        float *out = p->out + (size_t)row * p->stride + index / 2 * LANES;
        for (int v = 0; v < columns / 2 * VECTORS; v++, out += VECTOR) {
            const vf *gate = values + v / VECTORS * 2 * VECTORS + v % VECTORS;
            store(out, silu(gate[0]) * gate[VECTORS]);
        }
    } else
        for (int v = 0; v < columns * VECTORS; v++)
            put(p, index + v / VECTORS, v % VECTORS, row, values[v]);
}

/* The last block of 16 rows begins early rather than being short: same bits, one shape. */
INLINE int block_start(int first, int rows) {
    return first + BLOCK > rows && rows > BLOCK ? rows - BLOCK : first;
}

#ifdef AMX
/* Sums of some columns and a block or two of rows, from tiles. They are put a few rows at a time
 * while the next ones are summed: weights take their time to come, and so do tiles just stored. */
typedef struct {
    int index, next, end; /* rows not yet put, counted over the blocks */
    int first[2], skip;   /* where blocks begin; rows of the second that are the first's as well */
    vi sums[4][BLOCK];
} results;

/* Of one or two blocks of rows, from `first` on. */
INLINE void begin(results *r, int index, int first, int blocks, int rows) {
    const int last = first + (blocks - 1) * BLOCK, skip = last - block_start(last, rows);
    r->index = index;
    r->first[0] = block_start(first, rows), r->first[1] = block_start(last, rows);
    r->next = blocks == 1 ? skip : 0;
    r->skip = blocks == 1 ? 0 : skip;
    r->end = (rows < BLOCK ? rows : BLOCK) * blocks - r->skip;
}

/* The next few rows to be put. */
INLINE int until(const results *r, int rows) {
    return r->next + rows < r->end ? r->next + rows : r->end;
}

/* How many rows to put with each of so many steps. */
INLINE int pace(const results *r, int steps) { return (r->end - r->next + steps - 1) / steps; }

/* The weights of a pass over `columns` come in so many streams, each this many columns further
 * along with the next pass. */
INLINE int onward_by(const product *p, int columns) {
    return p->how == GATED && columns > 1 ? columns / 2 : columns;
}
#endif
