/* The forward of a Llama-like decoder, one call for a ragged batch of rows.
 *
 * Activations are float32, the KV cache is bfloat16. No row's bits depend on its neighbours.
 */
#include <stdlib.h>
#include <time.h>
#include "attention.h"
#include "matrices.h"
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#define THREADS omp_get_num_threads()
#else
#define THREAD 0
#define THREADS 1
#endif

typedef struct {
    matrix qkv, out, gate_up, down;
    const float *norm1, *norm2, *q_norm, *k_norm; /* the last two or NULL */
} layer;

/* What a forward spends its time on. */
enum { MATRICES, ATTENTION, CACHE, ELEMENTWISE, PARTS };

typedef struct {
    int32_t layers, hidden, heads, kv_heads, dim, inner, slots, length, threads;
    float eps, scale;
    const layer *layer;
    const float *norm, *cos, *sin; /* [length, dim / 2] */
    matrix embedding, head;
    uint16_t *keys;   /* bfloat16 [slot, layer, kv_head, length / 16, dim / 2, 16, 2] */
    uint16_t *values; /* bfloat16 [slot, layer, kv_head, length / 2, dim, 2] */
    int64_t *spent;   /* [PARTS] nanoseconds, of all forwards */
    int32_t taps;
    const int32_t *tapped; /* hidden states to keep: before layer 0, 1, ...; the last normalised */
    uint16_t *features;    /* bfloat16 [rows, taps, hidden], to be filled */
    /* Of a draft head (Li et al. 2025, EAGLE-3), or NULL: */
    const float *state_norm;
    int32_t norm_before_residual;
    matrix fuse;         /* features of a position to its state */
    const float *states; /* [rows, hidden] */
    float *guesses;      /* of the next, [wanted, hidden], to be filled */
} model;

static void normalise(const float *x, const float *weight, int width, float eps, float *out) {
    vf squares = {0};
    for (int i = 0; i < width; i += VECTOR) squares = fma_each(load(x + i), load(x + i), squares);
    vf factor = splat(1.0f / sqrtf(sum_of(squares) / (float)width + eps));
    for (int i = 0; i < width; i += VECTOR)
        store(out + i, load(x + i) * factor * load(weight + i));
}

/* Halves of a head turn against each other (Su et al. 2021, in Llama's layout), and grow. */
static void rotate(float *head, const float *cos, const float *sin, int half, float growth) {
    float *other = head + half;
    int i = 0;
    for (; i + VECTOR <= half; i += VECTOR) {
        const vf a = load(head + i), b = load(other + i);
        store(head + i, (a * load(cos + i) - b * load(sin + i)) * growth);
        store(other + i, (b * load(cos + i) + a * load(sin + i)) * growth);
    }
    for (; i < half; i++) {
        const float a = head[i], b = other[i];
        head[i] = (a * cos[i] - b * sin[i]) * growth;
        other[i] = (b * cos[i] + a * sin[i]) * growth;
    }
}

INLINE size_t lane_of(const model *m, int index, const token *t, int kv_head) {
    return (((size_t)t->slot * m->layers + index) * m->kv_heads + kv_head) * m->length * m->dim;
}

/* Finite, whatever a model does: what a token does not see is multiplied by 0. */
INLINE vf bounded(vf x) { return -max_each(-max_each(x, splat(-3e38f)), splat(-3e38f)); }

static void keep(const model *m, int index, const token *t, const float *key, const float *value) {
    for (int h = 0; h < m->kv_heads; h++, key += m->dim, value += m->dim) {
        const size_t lane = lane_of(m, index, t, h), block = t->place / LANES * LANES;
        uint16_t *keys = m->keys + lane + block * m->dim + t->place % LANES * 2;
        uint16_t *values = m->values + lane + (size_t)(t->place / 2) * m->dim * 2;
        for (int i = 0; i < m->dim; i += VECTOR) {
            uint16_t some[VECTOR];
            brief(bounded(load(key + i)), some);
            for (int j = 0; j < VECTOR; j += 2)
                memcpy(keys + (i + j) / 2 * LANES * 2, some + j, 2 * sizeof *some);
            brief_apart(bounded(load(value + i)), t->place % 2, values + i * 2);
        }
    }
}

/* Positions into the queries and keys of a row; queries come out as `look_up` wants them. */
static void turn(const model *m, int index, const token *t, float *qkv) {
    const layer *l = m->layer + index;
    const int dim = m->dim, half = dim / 2;
    for (int h = 0; h < m->heads + m->kv_heads; h++, qkv += dim) {
        const float *norm = h < m->heads ? l->q_norm : l->k_norm;
        if (norm) normalise(qkv, norm, dim, m->eps, qkv);
        rotate(qkv, m->cos + (size_t)t->position * half, m->sin + (size_t)t->position * half,
               half, h < m->heads ? m->scale * LOG2_E : 1);
    }
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

static lane lane_at(const model *m, int index, const token *tokens, run r, int kv_head) {
    const size_t at = lane_of(m, index, tokens + r.first, kv_head);
    const int end = end_of(tokens + r.first, r.rows);
    return (lane){m->keys + at, m->values + at, m->dim, m->length, end};
}

/* What the queries of a run find in a lane; `next` is the one after it, or NULL. */
static void attend(const model *m, const token *tokens, run r, int kv_head, const lane *l,
                   const lane *next, const float *qkv, float *desk, float *out) {
    const int share = m->heads / m->kv_heads, dim = m->dim, count = r.rows * share;
    const size_t width = (size_t)(m->heads + 2 * m->kv_heads) * dim;
    supply soon = supply_of(l, next);
    lookup who[LOOKUPS];
    for (int i = 0, n = 0; i < count; i++) {
        const int row = r.first + i / share, head = kv_head * share + i % share;
        const float *query = qkv + row * width + head * dim;
        who[n++] = (lookup){tokens + row, query, out + ((size_t)row * m->heads + head) * dim};
        if (n == LOOKUPS || i == count - 1) look_up(l, who, n, desk, &soon), n = 0;
    }
}

/* ---- the forward --------------------------------------------------------------------------- */

/* One forward's. All threads run through it together, each with its share of every part. */
typedef struct {
    const model *m;
    const token *tokens;
    int rows, run_count;
    float *h, *wide, *narrow, *desks;
    activations x;
    run *runs;
    int64_t since;
} forward;

static void *aligned(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* For rows of up to `width` numbers, as matrices take them. */
static int allocate_rows(forward *f, size_t width) {
    const size_t rows = f->rows;
    f->x.data = aligned(rows * (width + DEEP) * sizeof(brief_t)); /* the widest of them */
    f->x.low = aligned(rows * (width + DEEP));
    f->x.scale = aligned(rows * width / GROUP * sizeof(float));
    f->x.sum = aligned(rows * width / GROUP * sizeof(float));
    f->x.begin = aligned(rows * 2 * sizeof(vi));
    return f->x.data && f->x.low && f->x.scale && f->x.sum && f->x.begin;
}

static int allocate(forward *f) {
    const model *m = f->m;
    size_t attention = (size_t)(m->heads + 2 * m->kv_heads) * m->dim, inner = m->inner;
    size_t hidden = m->hidden, found = (size_t)m->heads * m->dim, rows = f->rows;
    size_t wide = larger(hidden, attention);
    size_t narrow = larger(m->state_norm ? 2 * hidden : hidden, larger(found, inner));
    f->h = aligned(rows * hidden * sizeof(float));
    f->wide = aligned(rows * wide * sizeof(float));
    f->narrow = aligned(rows * narrow * sizeof(float));
    f->desks = aligned(desk_of(m->dim, m->length) * m->threads * sizeof(float));
    f->runs = aligned(rows * sizeof(run));
    return f->h && f->wide && f->narrow && f->desks && f->runs && allocate_rows(f, narrow);
}

static void release(forward *f) {
    free(f->h), free(f->wide), free(f->narrow), free(f->desks), free(f->runs);
    free(f->x.data), free(f->x.low), free(f->x.scale), free(f->x.sum), free(f->x.begin);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Puts the time since the last such call down to `part`. */
static void charge(forward *f, int part) {
    if (THREAD) return;
    const int64_t time = now();
    f->m->spent[part] += time - f->since;
    f->since = time;
}

/* The rows as prepared times a matrix. Threads share pairs of columns: gates are in one hand with
 * what they open. */
static void times(forward *f, const matrix *w, int how, float *out) {
    const int columns = w->outputs / LANES, share = (columns / 2 + THREADS) / THREADS * 2;
    const int from = THREAD * share, end = from + share < columns ? from + share : columns;
    const product p = {w, &f->x, out, how == GATED ? w->outputs / 2 : w->outputs, how};
    multiply(&p, from, end);
#pragma omp barrier
    charge(f, MATRICES);
}

/* Queries, keys and values of all rows to what the queries find. */
static void look(forward *f, int index) {
    const model *m = f->m;
    const int heads = m->heads * m->dim, each = m->kv_heads * m->dim, width = heads + 2 * each;
#pragma omp for schedule(static) nowait
    for (int r = 0; r < f->rows; r++) turn(m, index, f->tokens + r, f->wide + (size_t)r * width);
    charge(f, ATTENTION);
#pragma omp for schedule(static)
    for (int r = 0; r < f->rows; r++) {
        const float *key = f->wide + (size_t)r * width + heads;
        keep(m, index, f->tokens + r, key, key + each);
    }
    charge(f, CACHE);
    float *desk = f->desks + desk_of(m->dim, m->length) * THREAD;
    const int each_run = m->kv_heads, lanes = f->run_count * each_run;
#pragma omp for schedule(dynamic)
    for (int i = 0; i < lanes; i++) {
        const int after = i + THREADS < lanes ? i + THREADS : i;
        const run r = f->runs[i / each_run], s = f->runs[after / each_run];
        const lane l = lane_at(m, index, f->tokens, r, i % each_run);
        const lane next = lane_at(m, index, f->tokens, s, after % each_run);
        attend(m, f->tokens, r, i % each_run, &l, after > i ? &next : NULL, f->wide, desk,
               f->narrow);
    }
    charge(f, ATTENTION);
}

/* What `next` multiplies is h. */
static void prepare_h(forward *f, const float *norm, const matrix *next) {
    const int width = f->m->hidden;
#pragma omp for schedule(static)
    for (int r = 0; r < f->rows; r++) {
        float *x = f->narrow + (size_t)r * width;
        normalise(f->h + (size_t)r * width, norm, width, f->m->eps, x);
        prepare(x, next->bits, width, r, &f->x);
    }
    charge(f, ELEMENTWISE);
}

/* What `next` multiplies has been found. */
static void prepare_found(forward *f, const matrix *next) {
    const int width = next->inputs;
#pragma omp for schedule(static)
    for (int r = 0; r < f->rows; r++)
        prepare(f->narrow + (size_t)r * width, next->bits, width, r, &f->x);
    charge(f, ELEMENTWISE);
}

/* The state of every row before layer `index`, or after the last one normalised, goes to the
 * features where it is tapped. */
static void tap(forward *f, int index) {
    const model *m = f->m;
    const int width = m->hidden, last = index == m->layers;
    for (int t = 0; t < m->taps; t++) {
        if (m->tapped[t] != index) continue;
#pragma omp for schedule(static)
        for (int r = 0; r < f->rows; r++) {
            const float *h = f->h + (size_t)r * width;
            float *x = f->wide + (size_t)r * width;
            uint16_t *to = m->features + ((size_t)r * m->taps + t) * width;
            if (last) normalise(h, m->norm, width, m->eps, x), h = x;
            for (int i = 0; i < width; i += VECTOR) brief(load(h + i), to + i);
        }
        charge(f, ELEMENTWISE);
    }
}

static void embed(forward *f) {
    const model *m = f->m;
#pragma omp for schedule(static)
    for (int r = 0; r < f->rows; r++)
        row_of(&m->embedding, f->tokens[r].id, f->h + (size_t)r * m->hidden);
}

/* A draft head's h is the state; its layer reads the embedding beside it, both normalised. */
static void embed_beside_states(forward *f) {
    const model *m = f->m;
    const int width = m->hidden;
#pragma omp for schedule(static)
    for (int r = 0; r < f->rows; r++) {
        const float *state = m->states + (size_t)r * width;
        float *embedding = f->narrow + (size_t)r * 2 * width, *normal = embedding + width;
        row_of(&m->embedding, f->tokens[r].id, embedding);
        normalise(embedding, m->layer->norm1, width, m->eps, embedding);
        normalise(state, m->state_norm, width, m->eps, normal);
        memcpy(f->h + (size_t)r * width, m->norm_before_residual ? normal : state,
               width * sizeof(float));
        prepare(embedding, m->layer->qkv.bits, 2 * width, r, &f->x);
    }
    charge(f, ELEMENTWISE);
}

static void through_layers(forward *f) {
    for (int i = 0; i < f->m->layers; i++) {
        const layer *l = f->m->layer + i;
        if (i || !f->m->state_norm) prepare_h(f, l->norm1, &l->qkv);
        tap(f, i);
        times(f, &l->qkv, PUT, f->wide);
        look(f, i);
        prepare_found(f, &l->out);
        times(f, &l->out, ADDED, f->h);
        prepare_h(f, l->norm2, &l->gate_up);
        times(f, &l->gate_up, GATED, f->narrow);
        prepare_found(f, &l->down);
        times(f, &l->down, ADDED, f->h);
    }
}

static void prepare_wanted(forward *f, const int32_t *wanted, int count) {
    const model *m = f->m;
    const int width = m->hidden;
#pragma omp single
    f->x.rows = count;
#pragma omp for schedule(static)
    for (int i = 0; i < count; i++) {
        const float *h = f->h + (size_t)wanted[i] * width;
        float *x = f->narrow + (size_t)i * width;
        if (m->guesses) memcpy(m->guesses + (size_t)i * width, h, width * sizeof(float));
        normalise(h, m->norm, width, m->eps, x);
        prepare(x, m->head.bits, width, i, &f->x);
    }
    charge(f, ELEMENTWISE);
}

/* What sums are made with here; another name, other bits. */
const char *starsd_arithmetic(void) {
#ifdef AMX
    if (amx_granted()) return "amx";
#endif
#if defined __AVX512BF16__
    return "avx512bf16";
#elif defined __AVX512F__
    return "avx512";
#elif defined __AVX2__
    return "avx2";
#else
    return "portable";
#endif
}

/* Logits [count, vocabulary] of the tokens `wanted`; 0, or 1 without memory. */
int starsd_forward(const model *m, const token *tokens, int rows, const int32_t *wanted, int count,
                   float *logits) {
    forward f = {.m = m, .tokens = tokens, .rows = rows, .x.rows = rows, .since = now()};
    int failed = !allocate(&f);
    if (!failed) {
        f.run_count = find_runs(tokens, rows, f.runs);
#pragma omp parallel num_threads(m->threads)
        {
            if (m->state_norm)
                embed_beside_states(&f);
            else
                embed(&f);
            through_layers(&f);
            tap(&f, m->layers);
            prepare_wanted(&f, wanted, count);
            times(&f, &m->head, PUT, logits);
            leave_tiles();
        }
    }
    release(&f);
    return failed;
}

/* States [rows, hidden] of a draft head from bfloat16 features; 0, or 1 without memory. */
int starsd_fuse(const model *m, const uint16_t *features, int rows, float *states) {
    const int width = m->fuse.inputs;
    forward f = {.m = m, .rows = rows, .x.rows = rows, .since = now()};
    f.wide = aligned((size_t)rows * width * sizeof(float));
    int failed = !allocate_rows(&f, width) || !f.wide;
    if (!failed) {
#pragma omp parallel num_threads(m->threads)
        {
#pragma omp for schedule(static)
            for (int r = 0; r < rows; r++) {
                float *x = f.wide + (size_t)r * width;
                const uint8_t *from = (const uint8_t *)(features + (size_t)r * width);
                for (int i = 0; i < width; i++) x[i] = brain(from, i);
                prepare(x, m->fuse.bits, width, r, &f.x);
            }
            charge(&f, ELEMENTWISE);
            times(&f, &m->fuse, PUT, states);
            leave_tiles();
        }
    }
    release(&f);
    return failed;
}
