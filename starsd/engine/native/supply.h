/* What the cache is told to fetch, a kilobyte at a time, while what came before is in use. */
#pragma once
#include "vectors.h"

typedef struct {
    struct {
        const uint8_t *at, *end;
    } spans[3];
    int first;
} supply;

INLINE void fetch_next(supply *s) {
    while (s->first < 3 && s->spans[s->first].at >= s->spans[s->first].end) s->first++;
    if (s->first == 3) return;
    const uint8_t *from = s->spans[s->first].at;
    s->spans[s->first].at += 1024;
    for (int i = 0; i < 1024; i += 64) __builtin_prefetch(from + i);
}
