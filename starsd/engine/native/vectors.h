/* What a forward does with vectors. */
#pragma once
#include "vector.h"

enum { AHEAD = 8192 }; /* bytes from weights in use to those that the cache is told to fetch */

/* Vectors of sums that the registers hold: so many beside each other, for so many rows. */
#ifdef __AVX512F__
enum { WIDE = 4, TALL = 6 };
#define FROM_3_TO_TALL(...)                               \
    OF_ROWS(3, __VA_ARGS__) OF_ROWS(4, __VA_ARGS__)       \
    OF_ROWS(5, __VA_ARGS__) OF_ROWS(6, __VA_ARGS__)
#else
enum { WIDE = 2, TALL = 2 };
#define FROM_3_TO_TALL(...)
#endif
#define OF_ROWS(n, ...)     \
    case n: {               \
        enum { ROWS = n };  \
        __VA_ARGS__;        \
        break;              \
    }
/* Does something with ROWS, a constant equal to `n`, which is at most TALL. */
#define FOR_ROWS(n, ...)                                                                  \
    switch (n) {                                                                          \
        OF_ROWS(1, __VA_ARGS__) OF_ROWS(2, __VA_ARGS__) FROM_3_TO_TALL(__VA_ARGS__)       \
    }

#define LOG2_E 1.44269504f

typedef int16_t vs __attribute__((vector_size(64)));
typedef uint8_t vb __attribute__((vector_size(64)));

INLINE void store(float *to, vf x) { memcpy(to, &x, sizeof x); }

/* Compilers take float16 vectors apart; the instruction has to be asked for. */
INLINE vf widen(const _Float16 *from) {
#ifdef __AVX512F__
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#else
    vf x;
    for (int i = 0; i < LANES; i++) x[i] = (float)from[i];
    return x;
#endif
}

INLINE vf min16(vf a, vf b) {
#ifdef __AVX512F__
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return -max16(-a, -b);
#endif
}

INLINE float sum_of(vf x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
#endif
}

INLINE float max_of(vf x) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)x);
#else
    float top = x[0];
    for (int i = 1; i < LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
#endif
}

INLINE int32_t count_of(vi x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_epi32((__m512i)x);
#else
    int32_t count = 0;
    for (int i = 0; i < LANES; i++) count += x[i];
    return count;
#endif
}

/* 32 floats times `factor` as whole numbers, ties to even. */
INLINE vs whole32(const float *x, vf factor) {
    const vf magic = splat(12582912.0f); /* adding it leaves them in the lower bits */
    vi a = (vi)fma16(load(x), factor, magic), b = (vi)fma16(load(x + LANES), factor, magic);
#ifdef __AVX512BW__
    const vs even = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                     32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    return (vs)_mm512_permutex2var_epi16((__m512i)a, (__m512i)even, (__m512i)b);
#else
    vs both;
    for (int i = 0; i < LANES; i++) both[i] = (int16_t)a[i], both[i + LANES] = (int16_t)b[i];
    return both;
#endif
}

INLINE void narrow(vs x, int8_t *to) {
#ifdef __AVX512BW__
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi16_epi8((__m512i)x));
#else
    for (int i = 0; i < 2 * LANES; i++) to[i] = (int8_t)x[i];
#endif
}

/* Sums of neighbours. */
INLINE vi pairs_of(vs x) {
#ifdef __AVX512BW__
    return (vi)_mm512_madd_epi16((__m512i)x, _mm512_set1_epi16(1));
#else
    return ((vi)x << 16 >> 16) + ((vi)x >> 16);
#endif
}

/* The upper halves are bfloat16, ties to even; the lower ones are not zero. */
INLINE vi rounded(vf x) { return (vi)x + 0x7fff + ((vi)x >> 16 & 1); }

/* To 16 bfloat16. */
INLINE void brief(vf x, void *to) {
#ifdef __AVX512BF16__
    __m256bh halves = _mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &halves, sizeof halves);
#else
    vi bits = rounded(x);
    for (int i = 0; i < LANES; i++) {
        uint16_t half = (uint16_t)((uint32_t)bits[i] >> 16);
        memcpy((uint8_t *)to + 2 * i, &half, sizeof half);
    }
#endif
}

/* To each second of 32 bfloat16: the odd ones, or the even ones. The others stay. */
INLINE void brief_apart(vf x, int odd, uint16_t *to) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    const __m512i halves = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)x));
    _mm512_mask_storeu_epi16(to, odd ? 0xaaaaaaaa : 0x55555555,
                             odd ? _mm512_slli_epi32(halves, 16) : halves);
#else
    uint16_t halves[LANES];
    brief(x, halves);
    for (int i = 0; i < LANES; i++) to[2 * i + odd] = halves[i];
#endif
}

/* Float of the lower or upper half of each lane. */
INLINE vf half_of(vi pairs, int upper) {
    return (vf)(upper ? pairs & (int32_t)0xffff0000 : pairs << 16);
}

/* 2^x, off by 3e-6: a polynomial for what x is above a whole number, times a power; 0 for -inf. */
INLINE vf power16(vf x) {
#ifdef __AVX512DQ__
    const vf rest = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const vf magic = splat(12582912.0f); /* adding it rounds to an integer */
    const vf whole = (x - splat(0.5f) + magic) - magic, rest = x - whole;
#endif
    vf p = splat(1.353417e-2f);
    p = fma16(p, rest, splat(5.201146e-2f));
    p = fma16(p, rest, splat(2.4144276e-1f));
    p = fma16(p, rest, splat(6.9300383e-1f));
    p = fma16(p, rest, splat(1.00000259f));
#ifdef __AVX512DQ__
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    const vf n = min16(max16(whole, splat(-126)), splat(127));
    return (vf)((vi)(p * (vf)((__builtin_convertvector(n, vi) + 127) << 23)) & (x > splat(-125)));
#endif
}

/* 1 / x for x from 1 on, infinite ones not included. */
INLINE vf inverse16(vf x) {
#ifdef __AVX512F__
    vf y = (vf)_mm512_rcp14_ps((__m512)x);
    return y * (splat(2) - x * y);
#else
    return splat(1) / x;
#endif
}

/* Each lane's sum grows by two products of bfloat16, that of the upper halves first. */
INLINE vf dot2(vf sum, vi w, const uint8_t *x) {
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    const vi both = (vi){0} + pair;
#ifdef __AVX512BF16__
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)both);
#else
    sum = fma16(half_of(w, 1), half_of(both, 1), sum);
    return fma16(half_of(w, 0), half_of(both, 0), sum);
#endif
}

/* Each lane's sum grows by four products of unsigned weights and the signed x[0..3]. */
INLINE vi dot4(vi sum, vb w, const int8_t *x) {
#ifdef __AVX512VNNI__
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(quad));
#else
    for (int i = 0; i < LANES; i++)
        sum[i] += w[4 * i] * x[0] + w[4 * i + 1] * x[1] + w[4 * i + 2] * x[2] + w[4 * i + 3] * x[3];
    return sum;
#endif
}
