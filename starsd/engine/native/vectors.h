/* What a forward does with vectors. */
#pragma once
#include "vector.h"

enum { AHEAD = 8192 }; /* bytes from weights in use to those that the cache is told to fetch */

/* Vectors of sums that the registers hold: so many beside each other, fewer where weights have to
 * be widened first, for so many rows. */
#if VECTOR == 16
enum { WIDE = 4, WIDENED = 2, TALL = 6 };
#define FROM_3_TO_TALL(...)                               \
    OF_ROWS(3, __VA_ARGS__) OF_ROWS(4, __VA_ARGS__)       \
    OF_ROWS(5, __VA_ARGS__) OF_ROWS(6, __VA_ARGS__)
#elif VECTOR == 8
enum { WIDE = 2, WIDENED = 2, TALL = 5 };
#define FROM_3_TO_TALL(...) \
    OF_ROWS(3, __VA_ARGS__) OF_ROWS(4, __VA_ARGS__) OF_ROWS(5, __VA_ARGS__)
#else
enum { WIDE = 4, WIDENED = 4, TALL = 2 };
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

typedef int16_t vs __attribute__((vector_size(4 * VECTOR)));
typedef uint8_t vb __attribute__((vector_size(4 * VECTOR)));
typedef uint64_t vl __attribute__((vector_size(4 * VECTOR)));

INLINE void store(float *to, vf x) { memcpy(to, &x, sizeof x); }

/* Compilers take float16 vectors apart; the instruction has to be asked for. */
INLINE vf widen(const _Float16 *from) {
#if VECTOR == 16
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif VECTOR == 8 && defined __F16C__
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
    vf x;
    for (int i = 0; i < VECTOR; i++) x[i] = (float)from[i];
    return x;
#endif
}

INLINE vf min_each(vf a, vf b) { return -max_each(-a, -b); }

INLINE float sum_of(vf x) {
#if VECTOR == 16
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum = 0;
    for (int i = 0; i < VECTOR; i++) sum += x[i];
    return sum;
#endif
}

INLINE float max_of(vf x) {
#if VECTOR == 16
    return _mm512_reduce_max_ps((__m512)x);
#else
    float top = x[0];
    for (int i = 1; i < VECTOR; i++) top = x[i] > top ? x[i] : top;
    return top;
#endif
}

/* Of whole vectors of numbers, the largest without its sign. */
INLINE float largest(const float *x, int count) {
    vf top = {0};
    for (int i = 0; i < count; i += VECTOR)
        top = max_each(top, max_each(load(x + i), -load(x + i)));
    return max_of(top);
}

INLINE int32_t count_of(vi x) {
#if VECTOR == 16
    return _mm512_reduce_add_epi32((__m512i)x);
#else
    int32_t count = 0;
    for (int i = 0; i < VECTOR; i++) count += x[i];
    return count;
#endif
}

/* Two vectors of floats times `factor` as whole numbers, ties to even. */
INLINE vs whole_of(const float *x, vf factor) {
    const vf magic = splat(12582912.0f); /* adding it leaves them in the lower bits */
    vi a = (vi)fma_each(load(x), factor, magic), b = (vi)fma_each(load(x + VECTOR), factor, magic);
#ifdef __AVX512BW__
    const vs even = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                     32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    return (vs)_mm512_permutex2var_epi16((__m512i)a, (__m512i)even, (__m512i)b);
#elif VECTOR == 8
    const __m256i mixed = _mm256_packus_epi32((__m256i)(a & 0xffff), (__m256i)(b & 0xffff));
    return (vs)_mm256_permute4x64_epi64(mixed, 0xd8);
#else
    vs both;
    for (int i = 0; i < VECTOR; i++) both[i] = (int16_t)a[i], both[i + VECTOR] = (int16_t)b[i];
    return both;
#endif
}

INLINE void narrow(vs x, int8_t *to) {
#ifdef __AVX512BW__
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi16_epi8((__m512i)x));
#elif VECTOR == 8
    const __m128i low = _mm256_castsi256_si128((__m256i)x);
    const __m128i high = _mm256_extracti128_si256((__m256i)x, 1);
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi16(low, high));
#else
    for (int i = 0; i < 2 * VECTOR; i++) to[i] = (int8_t)x[i];
#endif
}

/* Of each four numbers, the second and the third change places. */
INLINE vs crossed(vs x) {
    const vl fours = (vl)x;
    return (vs)((fours & 0xffff00000000ffff) | (fours << 16 & 0xffff00000000) |
                (fours >> 16 & 0xffff0000));
}

/* To each lane's sum, the products of two neighbours. */
INLINE vi add_pairs(vi sum, vs a, vs b) {
#if VECTOR == 8 && defined __AVXVNNI__
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined __AVX512BW__
    return sum + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif VECTOR == 8
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return sum + ((vi)a << 16 >> 16) * ((vi)b << 16 >> 16) + ((vi)a >> 16) * ((vi)b >> 16);
#endif
}

#ifndef __AVX512VNNI__
/* Sums of neighbouring products of unsigned weights, below 16, and the signed x[0..3] over and
 * over. */
INLINE vs pairs_of_bytes(vb w, const int8_t *x) {
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    const vi quads = (vi){0} + quad;
#ifdef __AVX512BW__
    return (vs)_mm512_maddubs_epi16((__m512i)w, (__m512i)quads);
#elif VECTOR == 8
    return (vs)_mm256_maddubs_epi16((__m256i)w, (__m256i)quads);
#else
    return ((vs)w & 255) * ((vs)quads << 8 >> 8) + ((vs)w >> 8) * ((vs)quads >> 8);
#endif
}
#endif

/* Sums of neighbours. */
INLINE vi pairs_of(vs x) { return add_pairs((vi){0}, x, (vs){0} + 1); }

/* The upper halves are bfloat16, ties to even; the lower ones are not zero. */
INLINE vi rounded(vf x) { return (vi)x + 0x7fff + ((vi)x >> 16 & 1); }

/* To bfloat16. */
INLINE void brief(vf x, void *to) {
#ifdef __AVX512BF16__
    __m256bh halves = _mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &halves, sizeof halves);
#else
    const vi bits = rounded(x) >> 16 & 0xffff;
#if VECTOR == 8
    const __m128i low = _mm256_castsi256_si128((__m256i)bits);
    const __m128i high = _mm256_extracti128_si256((__m256i)bits, 1);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi32(low, high));
#else
    for (int i = 0; i < VECTOR; i++) {
        const uint16_t half = (uint16_t)bits[i];
        memcpy((uint8_t *)to + 2 * i, &half, sizeof half);
    }
#endif
#endif
}

/* To each second of so many bfloat16 twice: the odd ones, or the even ones. The others stay. */
INLINE void brief_apart(vf x, int odd, uint16_t *to) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    const __m512i halves = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)x));
    _mm512_mask_storeu_epi16(to, odd ? 0xaaaaaaaa : 0x55555555,
                             odd ? _mm512_slli_epi32(halves, 16) : halves);
#else
    uint16_t halves[VECTOR];
    brief(x, halves);
    for (int i = 0; i < VECTOR; i++) to[2 * i + odd] = halves[i];
#endif
}

/* Float of the lower or upper half of each lane. */
INLINE vf half_of(vi pairs, int upper) {
    return (vf)(upper ? pairs & (int32_t)0xffff0000 : pairs << 16);
}

/* 2^x, off by 3e-6: a polynomial for what x is above a whole number, times a power; 0 for -inf. */
INLINE vf power_each(vf x) {
#ifdef __AVX512DQ__
    const vf rest = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const vf magic = splat(12582912.0f); /* adding it rounds to an integer */
    const vf whole = (x - splat(0.5f) + magic) - magic, rest = x - whole;
#endif
    vf p = splat(1.353417e-2f);
    p = fma_each(p, rest, splat(5.201146e-2f));
    p = fma_each(p, rest, splat(2.4144276e-1f));
    p = fma_each(p, rest, splat(6.9300383e-1f));
    p = fma_each(p, rest, splat(1.00000259f));
#ifdef __AVX512DQ__
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    const vf n = min_each(max_each(whole, splat(-126)), splat(127));
    return (vf)((vi)(p * (vf)((__builtin_convertvector(n, vi) + 127) << 23)) & (x > splat(-125)));
#endif
}

/* 1 / x for x from 1 on, infinite ones not included. */
INLINE vf inverse_each(vf x) {
#if VECTOR == 16
    vf y = (vf)_mm512_rcp14_ps((__m512)x);
    return y * (splat(2) - x * y);
#else
    return splat(1) / x;
#endif
}

/* bfloat16, or where that would have to be widened again and again, floats without lower halves. */
#ifdef __AVX512BF16__
typedef uint16_t brief_t;
#else
typedef float brief_t;
#endif

INLINE void brief_to(vf x, brief_t *to) {
#ifdef __AVX512BF16__
    brief(x, to);
#else
    store(to, half_of(rounded(x), 1));
#endif
}

/* Each lane's sum grows by two products of bfloat16, that of the upper halves first. */
INLINE vf dot2(vf sum, vi w, const brief_t *x) {
#ifdef __AVX512BF16__
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)((vi){0} + pair));
#else
    sum = fma_each(half_of(w, 1), splat(x[1]), sum);
    return fma_each(half_of(w, 0), splat(x[0]), sum);
#endif
}

#ifdef __AVX512VNNI__
/* Each lane's sum grows by four products of unsigned weights and the signed x[0..3]. */
INLINE vi dot4(vi sum, vb w, const int8_t *x) {
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(quad));
}
#endif
