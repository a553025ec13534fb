/* 8 bits by instructions that multiply words of 16 bits: weights are widened, even bytes of a quad
 * and odd ones apart. Rows are words [rows, inputs filled up to 64s], each quad in that order.
 */
#pragma once

enum { WHOLES = WIDENED / VECTORS }; /* columns at once */
enum { EXACT = 1024 };          /* inputs of which no sum passes 2^31 */

INLINE void whole_row(const float *x, int inputs, int row, activations *to) {
    int16_t *out = (int16_t *)to->data + (size_t)row * deep(inputs);
    const float most = largest(x, inputs), factor = most > 0 ? LEVELS / most : 0;
    for (int i = 0; i < inputs; i += 2 * VECTOR) {
        const vs words = crossed(whole_of(x + i, splat(factor)));
        memcpy(out + i, &words, sizeof words);
    }
    memset(out + inputs, 0, (deep(inputs) - inputs) * sizeof *out);
    to->scale[row] = most / LEVELS;
}

INLINE vs two_words(const int16_t *from) {
    int32_t two;
    memcpy(&two, from, sizeof two);
    return (vs)((vi){0} + two);
}

/* Whole sums of the inputs from `begin` to `end`. */
INLINE void add_words(const uint8_t *const *tile, int vectors, const int16_t *x, int line, int rows,
                      int begin, int end, upcoming *next, vi sums[][TALL]) {
    for (int i = begin; i < end; i += 4) {
        vs even[WHOLES * VECTORS], odd[WHOLES * VECTORS];
        for (int v = 0; v < vectors; v++) {
            vb quads;
            memcpy(&quads, tile[v] + i * LANES, sizeof quads);
            const vs words = (vs)(quads ^ 128);
            even[v] = words << 8 >> 8, odd[v] = words >> 8;
        }
        fetch_lines(next);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int16_t *at = x + r * line + i;
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++)
                sums[v][r] = add_pairs(sums[v][r], even[v], two_words(at));
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++)
                sums[v][r] = add_pairs(sums[v][r], odd[v], two_words(at + 2));
        }
    }
}

/* Some columns of some rows, both constants where this is inlined. */
INLINE void whole_block(const product *p, int index, int columns, int first, int rows,
                        upcoming next) {
    const matrix *w = p->w;
    const int inputs = deep(w->inputs), vectors = columns * VECTORS;
    const int16_t *x = (const int16_t *)p->x->data + (size_t)first * inputs;
    const uint8_t *tile[WHOLES * VECTORS];
    vf values[TALL][WHOLES * VECTORS] = {{{0}}};
    for (int v = 0; v < vectors; v++)
        tile[v] = whole_at(w, column_of(p, index + v / VECTORS)) + v % VECTORS * sizeof(vb);
    for (int i = 0; i < inputs; i += EXACT) {
        vi sums[WHOLES * VECTORS][TALL];
        for (int v = 0; v < vectors; v++)
            for (int r = 0; r < rows; r++) sums[v][r] = (vi){0};
        const int end = i + EXACT < inputs ? i + EXACT : inputs;
        add_words(tile, vectors, x, inputs, rows, i, end, &next, sums);
        for (int v = 0; v < vectors; v++)
            for (int r = 0; r < rows; r++) values[r][v] += __builtin_convertvector(sums[v][r], vf);
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) {
            const int column = column_of(p, index + v / VECTORS), at = v % VECTORS;
            const vf scale = load(w->scale + column * LANES + at * VECTOR);
            values[r][v] = fma_each(values[r][v], scale * splat(p->x->scale[first + r]),
                                    bias_of(w, column, at));
        }
        put_columns(p, index, columns, first + r, values[r]);
    }
}
