/* The winner of the race (sampler.py) and those behind it (ranking.py), where they can be told for
 * certain.
 *
 * Order, ties, scores before noise, top-k, min-p and the noise's integers are exact. The mass of
 * top-p is good to EPS and a score to 1e-12; where the winner hangs on either, numpy decides.
 */
#include "filters.h"
#include "philox.h"

enum { HITS = 256, UNSURE = -1 };

#define WIDTH 20.0   /* as sampler.py's */
#define DROWNING 1e6 /* as _DROWNING there */

typedef struct {
    int index, id;
    uint32_t word;
    double score;
} runner;

/* Who may win. E >= u, so a score of top + log(total / WIDTH) or more takes u <= WIDTH *
 * probability: a limit on the noise's word, here in logarithms. The bits of a float32 as a
 * fixed-point number are never above its log2; limits are 2e-3 too wide, far beyond rounding.
 */
typedef struct {
    float from, slope, furthest; /* distance to the best logit <= from - slope * bits, furthest */
    double floor;                /* scores of those not ahead are below */
    int count;
    runner hit[HITS];
} front;

/* Any total is right: a small one lets more in, a large one is missed by all more often. */
static void open_front(front *f, const row *r, double total) {
    const double ln2 = 0.6931471805599453, t = r->temperature;
    double limit = log(WIDTH / total) + 2e-3;
    f->from = (float)(t * (limit + (32 + 126) * ln2));
    f->slope = (float)(t * ln2 / (1 << 23));
    f->furthest = (float)(t * (limit + 33 * ln2));
    f->floor = r->top / t - log(WIDTH / total) + 1e-3;
    f->count = 0;
}

INLINE void enter(front *f, const row *r, int first, vf x, vu words) {
    vi log2s = (vi)__builtin_convertvector((vi)(words >> 1), vf);
    vi ahead = r->top - x <= f->from - f->slope * __builtin_convertvector(log2s, vf);
    for (uint32_t bits = lanes(ahead); bits; bits &= bits - 1) {
        int lane = __builtin_ctz(bits), index = first + lane;
        int id = r->ids ? (int)r->ids[index] : index;
        if (f->count < HITS) f->hit[f->count] = (runner){index, id, words[lane], 0};
        f->count++;
    }
}

static void run_all(front *f, const row *r, const maxima *m, const noise *n) {
    for (int c = 0; c < r->chunks; c++) {
        if (!reaches(m, c, r->top, f->furthest)) continue;
        for (int i = 0; i < CHUNK; i += 2 * VECTOR) {
            const float *x = chunk(r, c) + i;
            vu words[2];
            words_from(n, c * CHUNK + i, words);
            enter(f, r, c * CHUNK + i, load(x), words[0]);
            enter(f, r, c * CHUNK + i + VECTOR, load(x + VECTOR), words[1]);
        }
    }
}

static void run_listed(front *f, const row *r, const noise *n) {
    for (int i = 0; i < r->count; i += VECTOR)
        enter(f, r, i, load(chunk(r, i / CHUNK) + i % CHUNK), words_of(n, r->ids + i));
}

static void score(front *f, const row *r, double log_min_p) {
    for (int i = 0; i < f->count; i++) {
        runner *one = f->hit + i;
        double score = r->x[one->index] / r->temperature;
        int passes = score - r->top / r->temperature >= log_min_p;
        one->score = passes ? score - log(-log1p((one->word + 0.5) * -0x1p-32)) : -INFINITY;
    }
}

/* The best of some, or NULL if another comes too near. */
static runner *best_of(runner *hit, int count) {
    runner *best = hit;
    for (int i = 1; i < count; i++)
        if (hit[i].score > best->score) best = hit + i;
    double near = best->score - 1e-12 * (1000 + fabs(best->score));
    for (int i = 0; i < count; i++)
        if (hit + i != best && hit[i].score >= near) return NULL;
    return best;
}

/* The best, unless another comes too near or all are below the floor. */
static runner *first(front *f) {
    runner *best = f->count ? best_of(f->hit, f->count) : NULL;
    return best && best->score >= f->floor ? best : NULL;
}

static int32_t winner(front *f, const row *r, const filters *by) {
    if (f->count > HITS) return UNSURE;
    score(f, r, by->log_min_p);
    for (runner *one; (one = first(f)); one->score = -INFINITY) {
        if (by->top_p >= 1) return one->id;
        int found = inside(mass_of(r, one->index), by);
        if (found) return found > 0 ? one->id : UNSURE;
    }
    return UNSURE;
}

/* False where noise may drown, or there is no distribution. */
static int read_row(row *r, const float *logits, int count, double temperature, filters *by,
                    maxima *m) {
    if (count < 1 || count > CHUNKS * CHUNK) return 0;
    if (by->top_k >= count) by->top_k = 0;
    set_row(r, logits, NULL, count);
    r->temperature = temperature;
    return survey(r, m, by->top_p < 1 && !by->top_k ? &by->total : NULL) &&
           fabs(r->top) / temperature <= DROWNING;
}

/* The token, or UNSURE. At most the best `considered` run (0: all); no min-p is a log of -inf. */
int32_t starsd_draw(const float *logits, int32_t count, uint32_t position, uint64_t seed,
                    double temperature, int64_t top_k, double top_p, double log_min_p,
                    int64_t considered) {
    filters by = {top_k, considered, top_p, log_min_p, 0};
    noise n = noise_of(seed, position);
    row all, few, peaks;
    maxima m;
    list l;
    front f;
    if (!read_row(&all, logits, count, temperature, &by, &m)) return UNSURE;
    if (by.top_k || considered || top_p < 1 || log_min_p > -INFINITY) {
        if (narrow(&all, &m, &by, &l, &few)) {
            open_front(&f, &few, mass_of(&few, -1));
            run_listed(&f, &few, &n);
            return winner(&f, &few, &by);
        }
        if (by.top_k || considered) return UNSURE;
    }
    /* the maxima's mass is between a sixteenth of all and all of it */
    set_row(&peaks, m.of, NULL, all.chunks * LANES);
    peaks.top = all.top;
    peaks.temperature = temperature;
    open_front(&f, &all, 2 * mass_of(&peaks, -1));
    run_all(&f, &all, &m, &n);
    return winner(&f, &all, &by);
}

/* ---- ranks --------------------------------------------------------------------------------- */

/* A list by the ids that noise knows (NULL: its own), with one noise for all if `n` is NULL. False
 * if it is long, or who passes top-p is not certain. */
static int run_few(front *f, const row *r, const filters *by, const int64_t *ids, const noise *n) {
    uint32_t known[CHUNK] = {0};
    if (r->count > HITS) return 0;
    for (int i = 0; i < r->count; i++) known[i] = ids ? (uint32_t)ids[r->ids[i]] : r->ids[i];
    for (int i = 0; i < r->count; i += VECTOR) {
        vu words = n ? words_of(n, known + i) : (vu){0};
        for (int j = 0; j < VECTOR; j++) f->hit[i + j] = (runner){i + j, known[i + j], words[j], 0};
    }
    f->count = r->count;
    score(f, r, by->log_min_p);
    for (int i = 0; i < r->count && by->top_p < 1; i++) {
        int found = inside(mass_of(r, i), by);
        if (found < 0) return 0;
        if (!found) f->hit[i].score = -INFINITY;
    }
    return 1;
}

/* The best and their shares; how many, or UNSURE. */
static int leaders(front *f, double temperature, int wanted, int64_t *tokens, double *shares) {
    double top = -INFINITY, total = 0;
    int running = 0;
    for (int i = 0; i < f->count; i++) top = fmax(top, f->hit[i].score);
    for (int i = 0; i < f->count; i++) {
        total += exp((f->hit[i].score - top) * temperature);
        running += f->hit[i].score > -INFINITY;
    }
    if (wanted > running) wanted = running;
    for (int i = 0; i < wanted; i++) {
        runner *one = best_of(f->hit, f->count);
        if (!one) return UNSURE;
        tokens[i] = one->id;
        shares[i] = exp((one->score - top) * temperature) / total;
        one->score = -INFINITY;
    }
    return wanted;
}

/* As ranking.py's `rank`, of `rows` that lie `stride` apart, each at its position: the `wanted` best
 * and their confidences go to its part of `tokens` and `shares`, how many these are or UNSURE to
 * `found`. Temperature 0 is greedy. */
void starsd_rank(const float *logits, int64_t stride, int32_t rows, int32_t count,
                 const int64_t *ids, const uint32_t *positions, uint64_t seed, double temperature,
                 int64_t top_k, double top_p, double log_min_p, int64_t considered, int32_t wanted,
                 int64_t *tokens, double *shares, int32_t *found) {
    const int greedy = temperature == 0;
    const double t = greedy ? 1 : temperature;
    for (int i = 0; i < rows; i++, logits += stride, tokens += wanted, shares += wanted) {
        filters by = {top_k, considered, top_p, log_min_p, 0};
        if (greedy) by = (filters){0, considered, 1, -INFINITY, 0};
        noise n = noise_of(seed, positions[i]);
        row all, few;
        maxima m;
        list l;
        front f;
        found[i] = read_row(&all, logits, count, t, &by, &m) && narrow(&all, &m, &by, &l, &few) &&
                           run_few(&f, &few, &by, ids, greedy ? NULL : &n)
                       ? leaders(&f, t, wanted, tokens, shares)
                       : UNSURE;
    }
}
