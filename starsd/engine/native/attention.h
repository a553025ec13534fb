/* What queries find in the keys and values of a slot, both bfloat16 in pairs as AMX multiplies them:
 * keys [length / 16, dim / 2, 16, 2], values [length / 2, dim, 2].
 *
 * Each key and value is read once for several queries. What one of them does not see weighs
 * exactly 0, so company changes no bit. A branch of a tree is summed in the order of the chain that
 * it would be, so that neither do its siblings.
 */
#pragma once
#include "amx.h"
#include "supply.h"

enum { LOOKUPS = 16, KEYS = 32 }; /* at once; the length is a multiple of KEYS */
enum { APART = 32 };              /* floats, so that rows share no cache sets */

/* A token sees the first `linear` keys of its slot, and key `start + i` for each bit i of `tree`. */
typedef struct {
    int32_t id, slot, place, position, linear, start;
    uint32_t tree;
} token;

/* One query head of a row, scaled so that weights are powers of two. */
typedef struct {
    const token *t;
    const float *query;
    float *out;
} lookup;

/* The keys and values of a slot, layer and head; those before `end`, whole KEYS, are of interest. */
typedef struct {
    const uint16_t *keys, *values;
    int dim, length, end;
} lane;

/* What a query takes, in floats. */
INLINE int filled(int dim) { return (dim + 31) / 32 * 32; }

INLINE size_t bytes_of(const lane *l) { return (size_t)l->end * l->dim * sizeof(uint16_t); }

/* The keys are on their way as far as AHEAD; so are those of the next lane, if any, in the end. */
INLINE supply supply_of(const lane *l, const lane *next) {
    const size_t size = bytes_of(l), head = size < AHEAD ? size : AHEAD;
    const uint8_t *keys = (const uint8_t *)l->keys, *values = (const uint8_t *)l->values;
    supply s = {.spans = {{keys + head, keys + size}, {values, values + size}}};
    if (next) {
        const uint8_t *soon = (const uint8_t *)next->keys;
        s.spans[2].at = soon;
        s.spans[2].end = soon + (bytes_of(next) < AHEAD ? bytes_of(next) : AHEAD);
    }
    return s;
}

INLINE int last_of(const token *t) {
    return t->tree ? t->start + 32 - __builtin_clz(t->tree) : t->linear;
}

/* Whole KEYS with all that any of them sees. */
INLINE int end_of(const token *tokens, int n) {
    int last = 0;
    for (int i = 0; i < n; i++)
        if (last_of(tokens + i) > last) last = last_of(tokens + i);
    return (last + KEYS - 1) / KEYS * KEYS;
}

/* Moves the scores of a branch to where a chain has them; returns the number of keys it sees. */
INLINE int straighten(const token *t, float *scores) {
    int seen = t->linear;
    for (uint32_t bits = t->tree; bits; bits &= bits - 1)
        scores[seen++] = scores[t->start + __builtin_ctz(bits)];
    return seen;
}

/* The keys that a token does not see score -inf. */
INLINE void hide(const token *t, int end, float *scores) {
    const int first = straighten(t, scores);
    for (int i = first / VECTOR * VECTOR; i < end; i += VECTOR) {
        vi seen = count_up() + i < first;
        vi score = (vi)load(scores + i) & seen, least = (vi)splat(-INFINITY) & ~seen;
        store(scores + i, (vf)(score | least));
    }
}

INLINE vi pairs_at(const uint16_t *from) {
    vi pairs;
    memcpy(&pairs, from, sizeof pairs);
    return pairs;
}

/* Values before this many keys lie as every branch of the row has them. */
INLINE int shared_of(const token *t, int end) { return t->tree ? t->linear / KEYS * KEYS : end; }

/* The values from `shared` to `end`, those of a branch where a chain has them. */
INLINE void gather_branch(const lane *l, const token *t, int shared, int end, uint16_t *to) {
    int key[2 * KEYS];
    for (int i = shared; i < end; i++) key[i - shared] = i;
    int *next = key + t->linear - shared;
    for (uint32_t bits = t->tree; bits; bits &= bits - 1)
        *next++ = t->start + __builtin_ctz(bits);
    for (int i = 0; i < end - shared; i += 2)
        for (int d = 0; d < l->dim; d += VECTOR, to += 2 * VECTOR) {
            vi low = pairs_at(l->values + ((size_t)(key[i] / 2) * l->dim + d) * 2);
            vi high = pairs_at(l->values + ((size_t)(key[i + 1] / 2) * l->dim + d) * 2);
            if (key[i] % 2) low >>= 16;
            if (key[i + 1] % 2 == 0) high <<= 16;
            vi both = (low & 0xffff) | (high & ~0xffff);
            memcpy(to, &both, sizeof both);
        }
}

/* Those of the lookups that are of the first one's token. */
INLINE int of_one_token(const lookup *who, int count) {
    int n = 1;
    while (n < count && who[n].t == who->t) n++;
    return n;
}

INLINE float top_of(const float *scores, int count) {
    vf top = load(scores);
    for (int i = VECTOR; i < count; i += VECTOR) top = max_each(top, load(scores + i));
    return max_of(top);
}

/* ---- queries and weights as they are multiplied --------------------------------------------- */

#ifdef __AVX512BF16__
/* A query as groups of bfloat16, each followed by what it leaves, so that nothing is lost. */
INLINE void split(const float *query, int dim, float *to) {
    for (int d = 0; d < dim; d += LANES) {
        float *group = to + d / 32 * 32 + d % 32 / 2;
        vf x = load(query + d);
        brief(x, group);
        brief(x - half_of(rounded(x), 1), group + LANES);
    }
}

/* Number `i` of a query, and the one after it, times a pair. */
INLINE vf times_query(vf sum, vi pairs, const float *query, int i) {
    const brief_t *group = (const brief_t *)query + i / 32 * 64 + i % 32;
    return dot2(dot2(sum, pairs, group), pairs, group + 32);
}

INLINE vf times_weights(vf sum, vi pairs, const float *weights, int i) {
    return dot2(sum, pairs, (const brief_t *)weights + i);
}

INLINE void put_weights(vf found, float *weights, int i) { brief(found, (brief_t *)weights + i); }
#else
INLINE void split(const float *query, int dim, float *to) {
    memcpy(to, query, dim * sizeof *query);
}

INLINE vf times_query(vf sum, vi pairs, const float *query, int i) {
    sum = fma_each(half_of(pairs, 0), splat(query[i]), sum);
    return fma_each(half_of(pairs, 1), splat(query[i + 1]), sum);
}

INLINE vf times_weights(vf sum, vi pairs, const float *weights, int i) {
    return times_query(sum, pairs, weights, i);
}

INLINE void put_weights(vf found, float *weights, int i) { store(weights + i, found); }
#endif

/* Scores become weights 2^(score - largest), as `times_weights` takes them; returns one over their
 * sum. */
INLINE float soften(float *scores, int count) {
    vf peak = splat(top_of(scores, count)), sum = {0};
    for (int i = 0; i < count; i += VECTOR) {
        vf e = power_each(load(scores + i) - peak);
        sum += e;
        put_weights(e, scores, i);
    }
    return 1 / sum_of(sum);
}

/* ---- with tile registers ------------------------------------------------------------------- */

#ifdef AMX
/* Tiles 0 to 3 are sums of four columns, 4 and 5 left operands, 6 and 7 right ones. */
static void shape_lookup(int rows) { shape_tiles(0x0f, 0x30, rows, 16); }

/* Strides are bytes; groups are 32 numbers. */
typedef struct {
    const void *at;
    size_t line, column, group;
} operand;

/* One or four columns of `to` [rows, columns of 16] = left x right. Left operands may have another
 * group after each, of what it leaves to add. */
INLINE void multiply_columns(operand left, operand right, int column, int columns, int rests,
                             int groups, float *to, size_t stride, supply *soon) {
    const uint8_t *row = left.at, *at = (const uint8_t *)right.at + column * right.column;
    to += column * LANES, stride *= sizeof(float);
    settle();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int g = 0; g < groups; g++, row += left.group, at += right.group) {
        _tile_loadd(4, row, left.line);
        if (rests) _tile_loadd(5, row + 64, left.line);
        _tile_loadd(6, at, right.line);
        _tile_dpbf16ps(0, 4, 6);
        if (rests) _tile_dpbf16ps(0, 5, 6);
        fetch_next(soon);
        if (columns == 1) continue;
        fetch_next(soon);
        fetch_next(soon);
        fetch_next(soon);
        _tile_loadd(7, at + right.column, right.line);
        _tile_dpbf16ps(1, 4, 7);
        if (rests) _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(6, at + 2 * right.column, right.line);
        _tile_dpbf16ps(2, 4, 6);
        if (rests) _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(7, at + 3 * right.column, right.line);
        _tile_dpbf16ps(3, 4, 7);
        if (rests) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, stride);
    if (columns == 4) {
        _tile_stored(1, to + LANES, stride);
        _tile_stored(2, to + 2 * LANES, stride);
        _tile_stored(3, to + 3 * LANES, stride);
    }
    settle();
}

INLINE void multiply_lookup(operand left, operand right, int columns, int rests, int groups,
                            float *to, size_t stride, supply *soon) {
    int c = 0;
    for (; columns - c >= 4; c += 4)
        multiply_columns(left, right, c, 4, rests, groups, to, stride, soon);
    for (; c < columns; c++) multiply_columns(left, right, c, 1, rests, groups, to, stride, soon);
}

/* What the keys from `shared` on add to the sums of each token's lookups. */
static void add_branches(const lane *l, const lookup *who, int count, int shared, int end,
                         float *found, operand weights) {
    const int dim = l->dim;
    const uint8_t *line = (const uint8_t *)weights.at + shared / 32 * weights.group;
    uint16_t tail[2 * KEYS * dim];
    float sum[LOOKUPS * LANES];
    for (int h = 0, n; h < count; h += n) {
        n = of_one_token(who + h, count - h);
        gather_branch(l, who[h].t, shared, end, tail);
        for (int d = 0; d < dim; d += LANES) {
            settle();
            _tile_loadd(0, found + d, dim * sizeof(float));
            for (int g = 0; g < (end - shared) / 32; g++) {
                _tile_loadd(4, line + g * weights.group, weights.line);
                _tile_loadd(6, tail + 2 * d + g * 32 * dim, dim * 4);
                _tile_dpbf16ps(0, 4, 6);
            }
            _tile_stored(0, sum, sizeof(float) * LANES);
            settle();
            for (int i = h; i < h + n; i++) store(found + i * dim + d, load(sum + i * LANES));
        }
    }
}

static void look_up_tiled(const lane *l, const lookup *who, int count, float *desk,
                          supply *soon) {
    const int end = l->end, dim = l->dim, stride = l->length + APART;
    float *queries = desk, *found = queries + LOOKUPS * dim, *scores = found + LOOKUPS * dim;
    const operand left = {queries, dim * 4, 0, 128}, weights = {scores, stride * 4, 0, 64};
    const operand keys = {l->keys, 64, dim * 32, 1024};
    const operand values = {l->values, dim * 4, 64, dim * 64};
    float factor[LOOKUPS];
    shape_lookup(count);
    for (int h = 0; h < count; h++) split(who[h].query, dim, queries + h * dim);
    multiply_lookup(left, keys, end / LANES, 1, dim / 32, scores, stride, soon);
    for (int h = 0; h < count; h++) {
        hide(who[h].t, end, scores + h * stride);
        fetch_next(soon);
        factor[h] = soften(scores + h * stride, end);
    }
    const int shared = shared_of(who->t, end);
    multiply_lookup(weights, values, dim / LANES, 0, shared / 32, found, dim, soon);
    if (shared < end) add_branches(l, who, count, shared, end, found, weights);
    for (int h = 0; h < count; h++)
        for (int d = 0; d < dim; d += LANES)
            store(who[h].out + d, load(found + h * dim + d) * splat(factor[h]));
}
#endif

/* ---- without ------------------------------------------------------------------------------- */

/* Scores of some sixteens of keys for `n` queries, both constants where this is inlined. */
INLINE void score(const uint16_t *keys, int blocks, const float *queries, int n, int dim,
                  float *scores, int stride, supply *soon) {
    const int vectors = blocks * VECTORS;
    vf sum[TALL][WIDE];
    for (int h = 0; h < n; h++)
        for (int v = 0; v < vectors; v++) sum[h][v] = splat(0);
    for (int i = 0; i < dim; i += 2) {
        if (i % 16 == 0)
            for (int b = 0; b < blocks; b += 2) fetch_next(soon);
        for (int v = 0; v < vectors; v++) {
            vi pairs = pairs_at(keys + (v / VECTORS * dim + i) * LANES + v % VECTORS * 2 * VECTOR);
            for (int h = 0; h < n; h++)
                sum[h][v] = times_query(sum[h][v], pairs, queries + h * filled(dim), i);
        }
    }
    for (int h = 0; h < n; h++)
        for (int v = 0; v < vectors; v++) store(scores + h * stride + v * VECTOR, sum[h][v]);
}

/* What lookups of one run read, and where. */
typedef struct {
    const lane *l;
    const lookup *who;
    const uint16_t *tail; /* the values from `shared` on */
    int shared;
    float *queries, *scores, factor[TALL];
    supply *soon;
} reading;

/* Some vectors of dimensions of the weighted values for `n` lookups. */
INLINE void mix(const reading *r, int n, int at, int columns) {
    const int dim = r->l->dim, stride = r->l->length + APART;
    vf sum[TALL][WIDE];
    for (int h = 0; h < n; h++)
        for (int c = 0; c < columns; c++) sum[h][c] = splat(0);
    for (int i = 0; i < r->l->end; i += 2) {
        const uint16_t *from = i < r->shared ? r->l->values + (size_t)i * dim
                                             : r->tail + (i - r->shared) * dim;
        if (i % 8 == 0) fetch_next(r->soon);
        for (int c = 0; c < columns; c++) {
            vi pairs = pairs_at(from + (at + c * VECTOR) * 2);
            for (int h = 0; h < n; h++)
                sum[h][c] = times_weights(sum[h][c], pairs, r->scores + h * stride, i);
        }
    }
    for (int h = 0; h < n; h++)
        for (int c = 0; c < columns; c++)
            store(r->who[h].out + at + c * VECTOR, sum[h][c] * splat(r->factor[h]));
}

INLINE void look_up_some(reading r, int n) {
    const int end = r.l->end, dim = r.l->dim, stride = r.l->length + APART;
    int i = 0, at = 0;
    for (int h = 0; h < n; h++) split(r.who[h].query, dim, r.queries + h * filled(dim));
    for (; end - i >= WIDE * VECTOR; i += WIDE * VECTOR)
        score(r.l->keys + (size_t)i * dim, WIDE / VECTORS, r.queries, n, dim, r.scores + i, stride,
              r.soon);
    for (; i < end; i += LANES)
        score(r.l->keys + (size_t)i * dim, 1, r.queries, n, dim, r.scores + i, stride, r.soon);
    for (int h = 0; h < n; h++) {
        hide(r.who[h].t, end, r.scores + h * stride);
        r.factor[h] = soften(r.scores + h * stride, end);
    }
    for (; dim - at >= WIDE * VECTOR; at += WIDE * VECTOR) mix(&r, n, at, WIDE);
    for (; at < dim; at += VECTOR) mix(&r, n, at, 1);
}

/* In groups as equal as can be. */
static void look_up_plainly(const lane *l, const lookup *who, int count, float *desk,
                            supply *soon) {
    const int groups = (count + TALL - 1) / TALL, shared = shared_of(who->t, l->end);
    float *scores = desk + LOOKUPS * filled(l->dim);
    uint16_t tail[2 * KEYS * l->dim];
    if (shared < l->end) gather_branch(l, who->t, shared, l->end, tail);
    for (int g = 0; g < groups; g++) {
        const int first = count * g / groups, n = count * (g + 1) / groups - first;
        const reading r = {l, who + first, tail, shared, desk, scores, {0}, soon};
        FOR_ROWS(n, look_up_some(r, ROWS))
    }
}

/* ---- either -------------------------------------------------------------------------------- */

/* Floats that `look_up` needs. */
INLINE size_t desk_of(int dim, int length) {
    return (size_t)LOOKUPS * (2 * filled(dim) + length + APART);
}

/* Up to LOOKUPS in the same keys and values. */
static void look_up(const lane *l, const lookup *who, int count, float *desk, supply *soon) {
#ifdef AMX
    if (l->dim % 32 == 0 && amx_granted()) {
        look_up_tiled(l, who, count, desk, soon);
        return;
    }
#endif
    for (int n; count; count -= n, who += n) {
        n = who->t->tree ? of_one_token(who, count) : count;
        look_up_plainly(l, who, n, desk, soon);
    }
}
