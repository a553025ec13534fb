/* 8 bits by instructions that multiply bytes: high and low bytes of rows lie apart, [rows, inputs
 * filled up to 64s] twice. Sums start from what the weights' 128 will have added.
 */
#pragma once

enum { WHOLES = WIDE / 2 }; /* columns at once, two sums each */

/* Of the high bytes, or the low ones. */
INLINE int32_t *begin_at(const activations *x, int low, int row) {
    return x->begin + (size_t)(low * x->rows + row) * LANES;
}

INLINE void whole_row(const float *x, int inputs, int row, activations *to) {
    int8_t *high = (int8_t *)to->data + (size_t)row * deep(inputs);
    int8_t *low = (int8_t *)to->low + (size_t)row * deep(inputs);
    const float most = largest(x, inputs), factor = most > 0 ? LEVELS / most : 0;
    vi sums[2] = {{0}, {0}};
    for (int i = 0; i < inputs; i += 2 * LANES) {
        vs whole = whole_of(x + i, splat(factor)), upper = (whole + 64) >> 7;
        vs lower = whole - (upper << 7);
        narrow(upper, high + i), narrow(lower, low + i);
        sums[0] += pairs_of(upper), sums[1] += pairs_of(lower);
    }
    memset(high + inputs, 0, deep(inputs) - inputs);
    memset(low + inputs, 0, deep(inputs) - inputs);
    to->scale[row] = most / LEVELS;
    for (int i = 0; i < 2; i++) {
        const vi least = (vi){0} - 128 * count_of(sums[i]);
        memcpy(begin_at(to, i, row), &least, sizeof least);
    }
}

/* From sums over both bytes of a row to 16 outputs of it. */
INLINE vf scaled(const matrix *w, int column, const activations *x, int row, vi high, vi low) {
    vf whole = fma_each(__builtin_convertvector(high, vf), splat(128),
                     __builtin_convertvector(low, vf));
    const vf scale = load(w->scale + column * LANES) * splat(x->scale[row]);
    return fma_each(whole, scale, bias_of(w, column, 0));
}

/* Some columns of some rows, both constants where this is inlined. */
INLINE void whole_block(const product *p, int index, int columns, int first, int rows,
                        upcoming next) {
    const matrix *w = p->w;
    const activations *x = p->x;
    const int inputs = deep(w->inputs), size = inputs * LANES;
    const int8_t *upper = (int8_t *)x->data + (size_t)first * inputs;
    const int8_t *lower = (int8_t *)x->low + (size_t)first * inputs;
    const uint8_t *tile[WHOLES];
    vi high[WHOLES][TALL], low[WHOLES][TALL];
    for (int c = 0; c < columns; c++) {
        tile[c] = whole_at(w, column_of(p, index + c));
        for (int r = 0; r < rows; r++) {
            memcpy(high[c] + r, begin_at(x, 0, first + r), sizeof(vi));
            memcpy(low[c] + r, begin_at(x, 1, first + r), sizeof(vi));
        }
    }
    for (int i = 0; i < size; i += sizeof(vb), upper += 4, lower += 4) {
        vb quads[WHOLES];
        for (int c = 0; c < columns; c++) memcpy(quads + c, tile[c] + i, sizeof *quads);
        fetch_lines(&next);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int c = 0; c < columns; c++) {
                high[c][r] = dot4(high[c][r], quads[c], upper + r * inputs);
                low[c][r] = dot4(low[c][r], quads[c], lower + r * inputs);
            }
    }
    for (int r = 0; r < rows; r++) {
        vf values[WHOLES];
        for (int c = 0; c < columns; c++)
            values[c] = scaled(w, column_of(p, index + c), x, first + r, high[c][r], low[c][r]);
        put_columns(p, index, columns, first + r, values);
    }
}

#ifdef AMX
/* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights. */
static void shape_whole(int rows) { shape_tiles(0x0f, 0x30, rows, 16); }

INLINE void whole_put(const product *p, int columns, results *r, int rows) {
    const int end = until(r, rows), one = column_of(p, r->index);
    const int other = columns > 1 ? column_of(p, r->index + 1) : one;
    for (int i = r->next; i < end; i++) {
        const int row = r->first[0] + i;
        vf values[2] = {scaled(p->w, one, p->x, row, r->sums[0][i], r->sums[1][i])};
        if (columns > 1)
            values[1] = scaled(p->w, other, p->x, row, r->sums[2][i], r->sums[3][i]);
        put_columns(p, r->index, columns, row, values);
    }
    r->next = end;
}

/* One or two columns of a block of rows, like whole_block bit for bit; meanwhile `before` is put. */
INLINE void whole_tiles(const product *p, int columns, results *r, results *before) {
    const matrix *w = p->w;
    const int inputs = deep(w->inputs), first = r->first[0], next = onward_by(p, columns);
    const int rows = pace(before, inputs / DEEP);
    const size_t size = (size_t)inputs * LANES;
    const uint8_t *tile = whole_at(w, column_of(p, r->index));
    const uint8_t *other = whole_at(w, column_of(p, r->index + columns - 1));
    const uint8_t *high = p->x->data + (size_t)first * inputs;
    const uint8_t *low = p->x->low + (size_t)first * inputs;
    settle();
    _tile_loadd(0, begin_at(p->x, 0, first), 64);
    _tile_loadd(1, begin_at(p->x, 1, first), 64);
    if (columns == 2) {
        _tile_loadd(2, begin_at(p->x, 0, first), 64);
        _tile_loadd(3, begin_at(p->x, 1, first), 64);
    }
    for (int i = 0; i < inputs; i += DEEP) {
        whole_put(p, columns, before, rows);
        settle();
        _tile_loadd(4, high + i, inputs);
        _tile_loadd(5, low + i, inputs);
        if (!first) fetch(tile, (size_t)i * LANES, size, columns, next);
        _tile_loadd(6, tile + (size_t)i * LANES, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 5, 6);
        if (columns < 2) continue;
        if (!first) fetch(other, (size_t)i * LANES, size, columns, next);
        _tile_loadd(7, other + (size_t)i * LANES, 64);
        _tile_dpbsud(2, 4, 7);
        _tile_dpbsud(3, 5, 7);
    }
    _tile_stored(0, r->sums[0], 64);
    _tile_stored(1, r->sums[1], 64);
    if (columns == 2) {
        _tile_stored(2, r->sums[2], 64);
        _tile_stored(3, r->sums[3], 64);
    }
    settle();
}

/* `columns` at a time, a constant where this is inlined; returns where it stopped. */
INLINE int whole_pass(const product *p, int from, int end, int columns) {
    const int rows = p->x->rows;
    results both[2], *r = both, *before = both + 1;
    before->next = before->end = 0;
    for (; end - from >= columns; from += columns)
        for (int first = 0; first < rows; first += BLOCK) {
            begin(r, from, first, 1, rows);
            whole_tiles(p, columns, r, before);
            results *done = r;
            r = before, before = done;
        }
    whole_put(p, columns, before, rows);
    return from;
}

static void whole_tiled(const product *p, int from, int end) {
    const int rows = p->x->rows;
    shape_whole(rows < BLOCK ? rows : BLOCK);
    from = whole_pass(p, from, end, 2);
    whole_pass(p, from, end, 1);
}
#endif
