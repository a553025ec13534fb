/* Products with matrices of 16, 8 and 4 bits.
 *
 * A row's bits never depend on the rows beside it: whole numbers have exact sums, and floats are
 * summed in one fixed order.
 */
#pragma once
#include "brain.h"
#include "grouped.h"
#include "whole.h"

/* Row `row` of x [rows, inputs], for matrices of so many bits. */
static void prepare(const float *x, int bits, int inputs, int row, activations *to) {
    if (bits == 16)
        brain_row(x, inputs, row, to);
    else if (bits == 8)
        whole_row(x, inputs, row, to);
    else
        grouped_row(x, inputs, row, to);
}

INLINE const uint8_t *tiles_at(const matrix *w, int column) {
    if (w->bits == 16) return brain_at(w, column);
    return w->bits == 8 ? whole_at(w, column) : grouped_at(w, column);
}

/* Of as many `columns` from `index` on, what is to come with block `b` of `blocks`. After the last
 * column of a matrix lies, by and large, the first of the next one. */
INLINE upcoming upcoming_with(const product *p, int index, int columns, int b, int blocks) {
    const size_t size = tiles_at(p->w, 1) - tiles_at(p->w, 0), half = size * columns / 2;
    const uint8_t *one = tiles_at(p->w, column_of(p, index)), *other = one + half;
    if (columns == 1) {
        one += size * b / blocks;
        return (upcoming){one, one + 64, 64 / blocks};
    }
    if (p->how == GATED) other = tiles_at(p->w, column_of(p, index + 1));
    return (upcoming){one + half * b / blocks, other + half * b / blocks, 32 * columns / blocks};
}

/* `columns` at a time, a constant where this is inlined, as are `bits`; returns where it stopped.
 * Blocks of rows are as equal as can be. */
INLINE int pass(const product *p, int bits, int from, int end, int columns) {
    const int rows = p->x->rows, blocks = (rows + TALL - 1) / TALL;
    for (; end - from >= columns; from += columns)
        for (int b = 0; b < blocks; b++) {
            const int first = rows * b / blocks, tall = rows * (b + 1) / blocks - first;
            const upcoming next = upcoming_with(p, from + columns, columns, b, blocks);
            if (bits == 16)
                FOR_ROWS(tall, brain_block(p, from, columns, first, ROWS, next))
            else if (bits == 8)
                FOR_ROWS(tall, whole_block(p, from, columns, first, ROWS, next))
            else
                FOR_ROWS(tall, grouped_block(p, from, first, ROWS, next))
        }
    return from;
}

/* Those that are left over one at a time. */
INLINE void passes(const product *p, int bits, int from, int end, int columns) {
    if (columns > 1) from = pass(p, bits, from, end, columns);
    pass(p, bits, from, end, 1);
}

/* Sums in vector registers. */
static void multiply_plainly(const product *p, int from, int end) {
    if (p->w->bits == 16)
        passes(p, 16, from, end, BRAINS);
    else if (p->w->bits == 8)
        passes(p, 8, from, end, WHOLES);
    else
        pass(p, 4, from, end, 1);
}

#ifdef AMX
static void multiply_tiled(const product *p, int from, int end) {
    if (p->w->bits == 16)
        brain_tiled(p, from, end);
    else if (p->w->bits == 8)
        whole_tiled(p, from, end);
    else
        grouped_tiled(p, from, end);
}
#endif

/* Columns `from` to `end`, in the order of `column_of`, of x w^T + bias. Weights come from memory
 * once, whatever the rows. */
static void multiply(const product *p, int from, int end) {
    if (!p->x->rows || from >= end) return;
#ifdef AMX
    if (amx_granted() && (p->w->bits > 4 || p->x->rows > 4)) {
        multiply_tiled(p, from, end);
        return;
    }
#endif
    multiply_plainly(p, from, end);
}

/* Row `index` of a matrix of 8 or 16 bits, as floats. */
static void row_of(const matrix *w, int index, float *out) {
    const uint8_t *tiles = w->bits == 16 ? brain_at(w, index / LANES) : whole_at(w, index / LANES);
    const int lane = index % LANES;
    for (int i = 0; i < w->inputs; i++)
        if (w->bits == 16)
            out[i] = brain(tiles, (i / 2 * LANES + lane) * 2 + i % 2);
        else
            out[i] = (tiles[(i / 4 * LANES + lane) * 4 + i % 4] - 128) * w->scale[index];
}
