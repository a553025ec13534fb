/* A row of logits, and lists of its best. */
#pragma once
#include <float.h>
#include "lanes.h"

enum {
    CHUNK = 256,
    CHUNKS = 2048, /* so the largest vocabulary is 524,288 */
    LISTED = 4096,
    AHEAD = 1024, /* a page: processors prefetch up to its end by themselves */
};

/* Logits and, in a list, whose they are. What the last chunk lacks is -inf. */
typedef struct {
    const float *x;
    const uint32_t *ids;
    int count, chunks;
    float top;
    double temperature;
    float rest[CHUNK];
} row;

/* The best of each 16 tokens that lie 16 apart in a chunk. */
typedef struct {
    float of[CHUNKS * LANES];
} maxima;

typedef struct {
    int count;
    uint32_t ids[LISTED];
    float x[LISTED];
} list;

INLINE const float *chunk(const row *r, int index) {
    return (index + 1) * CHUNK <= r->count ? r->x + index * CHUNK : r->rest;
}

static void set_row(row *r, const float *x, const uint32_t *ids, int count) {
    r->x = x;
    r->ids = ids;
    r->count = count;
    r->chunks = (count + CHUNK - 1) / CHUNK;
    const int last = count & -CHUNK, left = count - last;
    memcpy(r->rest, x + last, left * sizeof *x);
    for (int i = left; i < CHUNK; i++) r->rest[i] = -INFINITY;
}

/* Relative error of a mass. Arguments of e^x, no more than log(524288) on average (entropy), are
 * good to 3 / 2^24; e^x to 3e-6, sums of up to 64 to 4e-6: under 1e-5 in all. */
#define EPS 1e-5

INLINE vf scale_of(const row *r) { return splat((float)(1.4426950408889634 / r->temperature)); }

INLINE double sum_of(vf x) {
    double sum = 0;
    for (int i = 0; i < VECTOR; i++) sum += x[i];
    return sum;
}

INLINE float top_of(vf x) {
    float top = x[0];
    for (int i = 1; i < VECTOR; i++) top = fmaxf(top, x[i]);
    return top;
}

/* Reads all once, while it comes from afar. False if there is no distribution: a NaN, or no largest
 * logit that is finite. `mass`, if wanted: probabilities relative to the best's, summed. */
static int survey(row *r, maxima *m, double *mass) {
    vf sums = {0}, scale = scale_of(r);
    r->top = -FLT_MAX;
    for (int c = 0; c < r->chunks; c++) {
        const float *x = chunk(r, c);
        for (int i = 0; i < CHUNK; i += LANES) __builtin_prefetch(x + AHEAD + i);
        vf best[VECTORS];
        memcpy(best, x, sizeof best);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int v = 0; v < VECTORS; v++) {
                const vf some = load(x + i + v * VECTOR);
                best[v] = max_each(best[v], some);
                sums += some; /* these keep a NaN */
            }
        memcpy(m->of + c * LANES, best, sizeof best);
        const float before = r->top;
        for (int v = 0; v < VECTORS; v++)
            if (lanes(best[v] > r->top)) r->top = top_of(best[v]);
        if (!mass) continue;
        if (r->top > before) *mass *= exp((before - (double)r->top) / r->temperature);
        vf weights = {0};
        for (int i = 0; i < CHUNK; i += VECTOR) weights += power(load(x + i) - r->top, scale);
        *mass += sum_of(weights);
    }
    return !isnan(sum_of(sums)) && r->top > -FLT_MAX && r->top < INFINITY;
}

/* Mass of all, or of those ranked before `index`. */
static double mass_of(const row *r, int index) {
    const vf scale = scale_of(r);
    const vf x = splat(index < 0 ? 0 : r->x[index]);
    double total = 0;
    for (int c = 0; c < r->chunks; c++) {
        const float *from = chunk(r, c);
        vf sum = {0};
        for (int i = 0; i < CHUNK; i += VECTOR) {
            vf v = load(from + i), w = power(v - r->top, scale);
            vi before = (v > x) | ((v == x) & (count_up() + (c * CHUNK + i) < index));
            sum += index < 0 ? w : (vf)((vi)w & before);
        }
        total += sum_of(sum);
    }
    return total;
}

/* Whether any logit of a chunk is at most so far below `top`. */
INLINE int reaches(const maxima *m, int chunk, float top, float distance) {
    vi any = {0};
    for (int v = 0; v < VECTORS; v++)
        any |= top - load(m->of + chunk * LANES + v * VECTOR) <= distance;
    return lanes(any) != 0;
}

/* Maxima that reach the limit. */
static int reaching(const row *r, const maxima *m, float limit) {
    vi count = {0};
    for (int i = 0; i < r->chunks * LANES; i += VECTOR) count -= load(m->of + i) >= limit;
    int sum = 0;
    for (int i = 0; i < VECTOR; i++) sum += count[i];
    return sum;
}

/* A limit that `wanted` logits reach, and few more where that can be had. */
static float limit_of(const row *r, const maxima *m, int wanted) {
    float low = r->top, high = low, step = (float)r->temperature;
    while (reaching(r, m, low) < wanted && low > -FLT_MAX) {
        high = low;
        low = fmaxf(r->top - step, -FLT_MAX);
        step *= 2;
    }
    for (int tries = 0; tries < 24 && reaching(r, m, low) > wanted + wanted / 4; tries++) {
        float middle = low / 2 + high / 2;
        *(reaching(r, m, middle) < wanted ? &high : &low) = middle;
    }
    return low;
}

/* Who reaches the limit, by id; false if there are too many. */
static int collect(const row *r, const maxima *m, float limit, list *l) {
    int count = 0;
    for (int c = 0; c < r->chunks; c++) {
        if (!reaches(m, c, limit, 0)) continue;
        if (count > LISTED - CHUNK) return 0;
        const float *x = chunk(r, c);
        for (int i = 0; i < CHUNK; i += VECTOR) {
            vf v = load(x + i);
            uint32_t bits = lanes(v >= limit);
            pack(bits, (vi)v, l->x + count);
            pack(bits, count_up() + (c * CHUNK + i), l->ids + count);
            count += __builtin_popcount(bits);
        }
    }
    l->count = count;
    return 1;
}

/* Falls as the logit rises, and rises with the id: the best token has the least. */
INLINE uint64_t rank_of(float x, uint32_t id) {
    uint32_t bits;
    x += 0.0f; /* no -0 */
    memcpy(&bits, &x, sizeof bits);
    return (uint64_t)(bits >> 31 ? bits : bits ^ 0x7fffffffu) << 32 | id;
}

/* The element that sorting would put at `index` (Hoare's quickselect). */
static uint64_t nth(uint64_t *keys, int count, int index) {
    for (int low = 0, high = count - 1; low < high;) {
        uint64_t pivot = keys[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (keys[i] < pivot) i++;
            while (keys[j] > pivot) j--;
            if (i > j) break;
            uint64_t swap = keys[i];
            keys[i++] = keys[j], keys[j--] = swap;
        }
        if (index <= j) high = j;
        else if (index >= i) low = i;
        else break;
    }
    return keys[index];
}

/* Leaves the `best`, ties to the lower id; 0 leaves all. */
static void keep(list *l, int64_t best) {
    if (!best || best >= l->count) return;
    uint64_t keys[LISTED];
    for (int i = 0; i < l->count; i++) keys[i] = rank_of(l->x[i], l->ids[i]);
    uint64_t last = nth(keys, l->count, (int)best - 1);
    int count = 0;
    for (int i = 0; i < l->count; i++) {
        float x = l->x[i];
        uint32_t id = l->ids[i];
        l->x[count] = x, l->ids[count] = id;
        count += rank_of(x, id) <= last;
    }
    l->count = count;
}
