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

/* Columns `from` to `end`, in the order of `column_of`, of x w^T + bias. Weights come from memory
 * once, whatever the rows. */
static void multiply(const product *p, int from, int end) {
    if (!p->x->rows || from >= end) return;
    if (p->w->bits == 16)
        brain_multiply(p, from, end);
    else if (p->w->bits == 8)
        whole_multiply(p, from, end);
    else
        grouped_multiply(p, from, end);
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
