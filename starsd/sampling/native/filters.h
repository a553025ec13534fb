/* What of a row passes top-k, top-p and min-p. */
#pragma once
#include "logits.h"

enum { FEW = 64 };

typedef struct {
    int64_t top_k, considered;
    double top_p, log_min_p;
    double total; /* mass that top_p is of */
} filters;

/* Whether the nucleus has a token with so much mass before it: 1 or 0, or -1 if it is too near. */
static int inside(double before, const filters *by) {
    double target = by->top_p * by->total;
    if (before == 0 || before < target * (1 - EPS)) return 1;
    return before < target * (1 + EPS) ? -1 : 0;
}

static void set_listed(row *r, const row *all, const list *l) {
    set_row(r, l->x, l->ids, l->count);
    r->top = all->top;
    r->temperature = all->temperature;
}

/* Whether a list of this mass, of all that reach the limit, holds what passes top-p and min-p. */
static int complete(double listed, const row *all, float limit, const filters *by) {
    const double t = all->temperature;
    return limit == -FLT_MAX || limit / t - all->top / t < by->log_min_p ||
           (by->top_p < 1 && inside(listed, by) == 0);
}

/* The best few as a row, with all that pass the filters, or false. */
static int narrow(const row *all, const maxima *m, filters *by, list *l, row *r) {
    int64_t asked = by->top_k ? by->top_k : by->considered;
    for (int64_t wanted = asked ? asked : FEW; wanted <= LISTED / 2; wanted *= 5) {
        float limit = limit_of(all, m, (int)wanted);
        if (!collect(all, m, limit, l)) return 0;
        keep(l, by->top_k);
        set_listed(r, all, l);
        double listed = by->top_p < 1 ? mass_of(r, -1) : 0;
        if (by->top_k) by->total = listed;
        keep(l, by->considered);
        set_listed(r, all, l);
        if (asked || complete(listed, all, limit, by)) return 1;
    }
    return 0;
}
