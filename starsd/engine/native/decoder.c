/* The forward of a Llama-like decoder, one call for a ragged batch of rows.
 *
 * Activations are float32, the KV cache is float16. No row's bits depend on its neighbours.
 */
#include <stdlib.h>
#include "matrices.h"
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#else
#define THREAD 0
#endif

typedef struct {
    matrix qkv, out, gate_up, down;
    const float *norm1, *norm2, *q_norm, *k_norm; /* the last two or NULL */
} layer;

typedef struct {
    int32_t layers, hidden, heads, kv_heads, dim, inner, slots, length, threads;
    float eps, scale;
    const layer *layer;
    const float *norm, *cos, *sin; /* [length, dim / 2] */
    matrix embedding, head;
    _Float16 *keys;   /* [layer, slot, kv_head, length / 16, dim, 16] */
    _Float16 *values; /* [layer, slot, kv_head, length, dim] */
} model;

/* A token sees the first `linear` keys of its slot, and key `start + i` for each bit i of `tree`. */
typedef struct {
    int32_t id, slot, place, position, linear, start;
    uint32_t tree;
} token;

static void normalise(const float *x, const float *weight, int rows, int width, float eps,
                      float *out) {
    for (int r = 0; r < rows; r++, x += width, out += width) {
        vf squares = {0};
        for (int i = 0; i < width; i += LANES) {
            vf v = load(x + i);
            squares = fma16(v, v, squares);
        }
        vf factor = splat(1.0f / sqrtf(sum_of(squares) / (float)width + eps));
        for (int i = 0; i < width; i += LANES)
            store(out + i, load(x + i) * factor * load(weight + i));
    }
}

static void add(float *to, const float *x, size_t count) {
    for (size_t i = 0; i < count; i += LANES) store(to + i, load(to + i) + load(x + i));
}

/* Halves of a head turn against each other (Su et al. 2021, in Llama's layout). */
static void rotate(float *head, const float *cos, const float *sin, int half) {
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = b * cos[i] + a * sin[i];
    }
}

INLINE size_t lane_of(const model *m, int index, const token *t, int kv_head) {
    return (((size_t)index * m->slots + t->slot) * m->kv_heads + kv_head) * m->length * m->dim;
}

static void keep(const model *m, int index, const token *t, const float *key, const float *value) {
    for (int h = 0; h < m->kv_heads; h++, key += m->dim, value += m->dim) {
        _Float16 *keys = m->keys + lane_of(m, index, t, h) +
                         (size_t)(t->place / LANES) * LANES * m->dim + t->place % LANES;
        _Float16 *values = m->values + lane_of(m, index, t, h) + (size_t)t->place * m->dim;
        for (int i = 0; i < m->dim; i++) {
            keys[i * LANES] = (_Float16)key[i];
            values[i] = (_Float16)value[i];
        }
    }
}

static void turn_and_keep(const model *m, int index, const token *t, float *qkv) {
    const layer *l = m->layer + index;
    const int dim = m->dim, half = dim / 2;
    float *key = qkv + m->heads * dim, *value = key + m->kv_heads * dim;
    if (l->q_norm) {
        normalise(qkv, l->q_norm, m->heads, dim, m->eps, qkv);
        normalise(key, l->k_norm, m->kv_heads, dim, m->eps, key);
    }
    for (int h = 0; h < m->heads + m->kv_heads; h++)
        rotate(qkv + h * dim, m->cos + (size_t)t->position * half,
               m->sin + (size_t)t->position * half, half);
    keep(m, index, t, key, value);
}

/* One query head of a row. */
typedef struct {
    const token *t;
    const float *query;
    float *out;
} lookup;

enum { MOST = 6 }; /* lookups at once: each key and value is read once for all of them */

/* Scores of 16 keys for `n` lookups. */
INLINE void score(const _Float16 *keys, const lookup *who, int n, int dim, float *scores,
                  int stride) {
    vf sum[MOST];
    for (int h = 0; h < n; h++) sum[h] = splat(0);
    for (int i = 0; i < dim; i++) {
        vf key = widen(keys + i * LANES);
        for (int h = 0; h < n; h++) sum[h] = fma16(key, splat(who[h].query[i]), sum[h]);
    }
    for (int h = 0; h < n; h++) store(scores + h * stride, sum[h]);
}

INLINE int sees(const token *t, int key) {
    int bit = key - t->start;
    return key < t->linear || (bit >= 0 && bit < 32 && (t->tree >> bit & 1));
}

/* The keys from `first` on that a token does not see score -inf. */
INLINE void hide(const token *t, int first, int end, float *scores) {
    for (int i = first; i < end; i++)
        if (!sees(t, i)) scores[i] = -INFINITY;
}

/* `weights` become e^(weight - largest); returns one over their sum. */
INLINE float soften(float *weights, int count) {
    vf top = load(weights), sum = {0};
    for (int i = LANES; i < count; i += LANES) top = max16(top, load(weights + i));
    vf peak = splat(max_of(top));
    for (int i = 0; i < count; i += LANES) {
        vf e = exp16(load(weights + i) - peak);
        store(weights + i, e);
        sum += e;
    }
    return 1 / sum_of(sum);
}

/* 16 dimensions, or 64, of the weighted values for `n` lookups. */
INLINE void mix(const _Float16 *values, const float *weights, const float *factor,
                const lookup *who, int n, int count, int dim, int stride, int at, int columns) {
    vf sum[MOST][4];
    for (int h = 0; h < n; h++)
        for (int c = 0; c < columns; c++) sum[h][c] = splat(0);
    for (int i = 0; i < count; i++)
        for (int c = 0; c < columns; c++) {
            vf value = widen(values + (size_t)i * dim + at + c * LANES);
            for (int h = 0; h < n; h++)
                sum[h][c] = fma16(value, splat(weights[h * stride + i]), sum[h][c]);
        }
    for (int h = 0; h < n; h++)
        for (int c = 0; c < columns; c++)
            store(who[h].out + at + c * LANES, sum[h][c] * splat(factor[h]));
}

INLINE int last_of(const token *t) {
    return t->tree ? t->start + 32 - __builtin_clz(t->tree) : t->linear;
}

/* `n` lookups in the same keys and values. What one of them does not see weighs exactly 0, so
 * company changes no bit. */
INLINE void look_up(const _Float16 *keys, const _Float16 *values, const lookup *who, int n,
                    int dim, int stride, float *scores) {
    int last = 0, common = who->t->linear;
    for (int h = 0; h < n; h++) {
        if (last_of(who[h].t) > last) last = last_of(who[h].t);
        if (who[h].t->linear < common) common = who[h].t->linear;
    }
    const int end = (last + LANES - 1) / LANES * LANES;
    for (int i = 0; i < end; i += LANES)
        score(keys + (size_t)i * dim, who, n, dim, scores + i, stride);
    float factor[MOST];
    for (int h = 0; h < n; h++) {
        hide(who[h].t, common, end, scores + h * stride);
        factor[h] = soften(scores + h * stride, end);
    }
    int at = 0;
    for (; dim - at >= 4 * LANES; at += 4 * LANES)
        mix(values, scores, factor, who, n, last, dim, stride, at, 4);
    for (; at < dim; at += LANES) mix(values, scores, factor, who, n, last, dim, stride, at, 1);
}

/* Tokens of one slot, neighbours in the batch. */
typedef struct {
    int first, rows;
} run;

enum { RUN = 16 };

static int find_runs(const token *tokens, int rows, run *to) {
    int count = 0;
    for (int i = 0; i < rows; i++) {
        run *r = to + count - 1;
        if (count && tokens[i].slot == tokens[r->first].slot && r->rows < RUN)
            r->rows++;
        else
            to[count++] = (run){i, 1};
    }
    return count;
}

static void attend(const model *m, int index, const token *tokens, run r, int kv_head, float *qkv,
                   float *scores, float *out) {
    const int share = m->heads / m->kv_heads, dim = m->dim, count = r.rows * share;
    const size_t width = (size_t)(m->heads + 2 * m->kv_heads) * dim;
    const _Float16 *keys = m->keys + lane_of(m, index, tokens + r.first, kv_head);
    const _Float16 *values = m->values + lane_of(m, index, tokens + r.first, kv_head);
    lookup who[MOST];
    for (int i = 0; i < count;) {
        const int left = count - i, n = left >= MOST ? MOST : left >= 3 ? 3 : left;
        for (int h = 0; h < n; h++) {
            const int row = r.first + (i + h) / share, head = kv_head * share + (i + h) % share;
            float *query = qkv + row * width + head * dim;
            for (int d = 0; d < dim; d++) query[d] *= m->scale;
            who[h] = (lookup){tokens + row, query, out + ((size_t)row * m->heads + head) * dim};
        }
        if (n == MOST) look_up(keys, values, who, MOST, dim, m->length, scores);
        if (n == 3) look_up(keys, values, who, 3, dim, m->length, scores);
        if (n == 2) look_up(keys, values, who, 2, dim, m->length, scores);
        if (n == 1) look_up(keys, values, who, 1, dim, m->length, scores);
        i += n;
    }
}

static void attend_all(const model *m, int index, const token *tokens, const run *runs, int count,
                       float *qkv, float *scores, float *out) {
#pragma omp parallel for schedule(dynamic) num_threads(m->threads)
    for (int i = 0; i < count * m->kv_heads; i++)
        attend(m, index, tokens, runs[i / m->kv_heads], i % m->kv_heads, qkv,
               scores + (size_t)MOST * m->length * THREAD, out);
}

/* silu(gate) * up: [rows, 2 * inner] to [rows, inner]. */
static void gate(const float *both, int rows, int inner, float *out) {
    for (int r = 0; r < rows; r++, both += 2 * inner, out += inner)
        for (int i = 0; i < inner; i += LANES) {
            vf x = load(both + i), up = load(both + inner + i);
            store(out + i, x / (splat(1) + exp16(-x)) * up);
        }
}

/* ---- the forward --------------------------------------------------------------------------- */

typedef struct {
    float *h, *wide, *narrow, *scores;
    activations x;
    run *runs;
    int run_count;
} scratch;

static void *aligned(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static int allocate(scratch *s, const model *m, size_t rows) {
    size_t attention = (size_t)(m->heads + 2 * m->kv_heads) * m->dim, inner = m->inner;
    size_t hidden = m->hidden, found = (size_t)m->heads * m->dim;
    size_t wide = larger(hidden, larger(attention, 2 * inner));
    size_t narrow = larger(hidden, larger(found, inner));
    s->h = aligned(rows * hidden * sizeof(float));
    s->wide = aligned(rows * wide * sizeof(float));
    s->narrow = aligned(rows * narrow * sizeof(float));
    s->scores = aligned(MOST * (size_t)m->length * m->threads * sizeof(float));
    s->runs = aligned(rows * sizeof(run));
    s->x.data = aligned(rows * (narrow * 2 + DEEP));
    s->x.low = aligned(rows * (narrow + DEEP));
    s->x.scale = aligned(rows * narrow / GROUP * sizeof(float));
    s->x.sum = aligned(rows * narrow / GROUP * sizeof(float));
    s->x.sums = aligned(rows * 2 * sizeof(int32_t));
    return s->h && s->wide && s->narrow && s->scores && s->runs && s->x.data && s->x.low &&
           s->x.scale && s->x.sum && s->x.sums;
}

static void release(scratch *s) {
    free(s->h), free(s->wide), free(s->narrow), free(s->scores), free(s->runs);
    free(s->x.data), free(s->x.low), free(s->x.scale), free(s->x.sum), free(s->x.sums);
}

static void through_layer(const model *m, int index, const token *tokens, int rows, scratch *s) {
    const layer *l = m->layer + index;
    const int attention = (m->heads + 2 * m->kv_heads) * m->dim, found = m->heads * m->dim;
    normalise(s->h, l->norm1, rows, m->hidden, m->eps, s->narrow);
    prepare(s->narrow, l->qkv.bits, rows, m->hidden, &s->x);
    multiply(&l->qkv, &s->x, rows, m->threads, s->wide);
    for (int r = 0; r < rows; r++)
        turn_and_keep(m, index, tokens + r, s->wide + (size_t)r * attention);
    attend_all(m, index, tokens, s->runs, s->run_count, s->wide, s->scores, s->narrow);
    prepare(s->narrow, l->out.bits, rows, found, &s->x);
    multiply(&l->out, &s->x, rows, m->threads, s->narrow);
    add(s->h, s->narrow, (size_t)rows * m->hidden);
    normalise(s->h, l->norm2, rows, m->hidden, m->eps, s->narrow);
    prepare(s->narrow, l->gate_up.bits, rows, m->hidden, &s->x);
    multiply(&l->gate_up, &s->x, rows, m->threads, s->wide);
    gate(s->wide, rows, m->inner, s->narrow);
    prepare(s->narrow, l->down.bits, rows, m->inner, &s->x);
    multiply(&l->down, &s->x, rows, m->threads, s->narrow);
    add(s->h, s->narrow, (size_t)rows * m->hidden);
}

/* What sums are made with here; another name, other bits. */
const char *starsd_arithmetic(void) {
#ifdef AMX
    if (amx_granted()) return "amx";
#endif
#ifdef __AVX512F__
    return "avx512";
#else
    return "portable";
#endif
}

/* Logits [count, vocabulary] of the tokens `wanted`; 0, or 1 without memory. */
int starsd_forward(const model *m, const token *tokens, int rows, const int32_t *wanted, int count,
                   float *logits) {
    scratch s = {0};
    int failed = !allocate(&s, m, (size_t)rows);
    if (!failed) {
        for (int r = 0; r < rows; r++)
            row_of(&m->embedding, tokens[r].id, s.h + (size_t)r * m->hidden);
        s.run_count = find_runs(tokens, rows, s.runs);
        for (int i = 0; i < m->layers; i++) through_layer(m, i, tokens, rows, &s);
        for (int i = 0; i < count; i++)
            memcpy(s.wide + (size_t)i * m->hidden, s.h + (size_t)wanted[i] * m->hidden,
                   m->hidden * sizeof(float));
        normalise(s.wide, m->norm, count, m->hidden, m->eps, s.narrow);
        prepare(s.narrow, m->head.bits, count, m->hidden, &s.x);
        multiply(&m->head, &s.x, count, m->threads, logits);
    }
    release(&s);
    return failed;
}
