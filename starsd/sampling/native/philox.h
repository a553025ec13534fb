/* The noise's integers: Philox4x32-10 as in noise.py. */
#pragma once
#include "lanes.h"

#define LOW 0xffffffffu

typedef struct {
    uint64_t position, keys[10][2];
} noise;

static noise noise_of(uint64_t seed, uint32_t position) {
    noise n = {.position = position};
    for (uint32_t i = 0; i < 10; i++) {
        n.keys[i][0] = (uint32_t)seed + i * 0x9E3779B9u;
        n.keys[i][1] = (uint32_t)(seed >> 32) + i * 0xBB67AE85u;
    }
    return n;
}

/* The four words of some quads of tokens, in low halves. */
INLINE void philox(const noise *n, vl quads, vl words[4]) {
    vl a = quads, b = n->position - (vl){0}, c = {0}, d = {0};
    for (int i = 0; i < 10; i++) {
        vl first = times(a, 0xD2511F53u), second = times(c, 0xCD9E8D57u);
        a = (second >> 32) ^ b ^ n->keys[i][0];
        b = second; /* high halves count for nothing */
        c = (first >> 32) ^ d ^ n->keys[i][1];
        d = first;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

/* Words of the next two vectors of tokens from `first`, a multiple of 4, on. */
INLINE void words_from(const noise *n, uint64_t first, vu words[2]) {
    static const uint64_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    vl w[4], quads, both[2];
    memcpy(&quads, numbers, sizeof quads);
    philox(n, quads + first / 4, w);
    interleave((w[0] & LOW) | (w[1] << 32), (w[2] & LOW) | (w[3] << 32), both);
    words[0] = (vu)both[0], words[1] = (vu)both[1];
}

INLINE vl words_of_half(const noise *n, vl ids) {
    vl w[4], which = ids & 3;
    philox(n, ids >> 2, w);
    for (uint64_t i = 1; i < 4; i++) {
        vl mine = (vl)(which == i);
        w[0] = (w[0] & ~mine) | (w[i] & mine);
    }
    return w[0] & LOW;
}

/* Words of any tokens. */
INLINE vu words_of(const noise *n, const uint32_t *ids) {
    vu words;
    for (int i = 0; i < VECTOR; i += VECTOR / 2) {
        uint32_t half __attribute__((vector_size(2 * VECTOR)));
        memcpy(&half, ids + i, sizeof half);
        vl w = words_of_half(n, __builtin_convertvector(half, vl));
        half = __builtin_convertvector(w, __typeof__(half));
        memcpy((uint32_t *)&words + i, &half, sizeof half);
    }
    return words;
}
