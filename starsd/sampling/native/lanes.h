/* What sampling does with vectors. */
#pragma once
#include "vector.h"

typedef uint32_t vu __attribute__((vector_size(4 * VECTOR)));
typedef uint64_t vl __attribute__((vector_size(4 * VECTOR)));

#ifdef __clang__
#define SHUFFLE __builtin_shufflevector
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vl){__VA_ARGS__})
#endif

/* The first halves of two vectors, in turn, and the second halves. */
INLINE void interleave(vl a, vl b, vl to[2]) {
#if VECTOR == 16
    to[0] = SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    to[1] = SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif VECTOR == 8
    to[0] = SHUFFLE(a, b, 0, 4, 1, 5), to[1] = SHUFFLE(a, b, 2, 6, 3, 7);
#else
    to[0] = SHUFFLE(a, b, 0, 2), to[1] = SHUFFLE(a, b, 1, 3);
#endif
}

/* A bit for each lane that is true. */
INLINE uint32_t lanes(vi yes) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)yes, (__m512i)yes);
#elif VECTOR == 8
    return (uint32_t)_mm256_movemask_ps((__m256)yes);
#else
    uint32_t bits = 0;
    for (int i = 0; i < VECTOR; i++) bits |= (uint32_t)(yes[i] & 1) << i;
    return bits;
#endif
}

/* These lanes side by side; what follows them, up to a vector, is lost. */
INLINE void pack(uint32_t bits, vi x, void *to) {
#ifdef __AVX512F__
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)x));
#else
    int32_t *next = to;
    for (; bits; bits &= bits - 1) *next++ = x[__builtin_ctz(bits)];
#endif
}

/* The low halves' products. */
INLINE vl times(vl a, uint32_t b) {
#ifdef __AVX512F__
    return (vl)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif VECTOR == 8
    return (vl)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* 2^(x * scale) for x * scale <= 0, to 3e-6 beside the error of that product; never under 2^-126. */
INLINE vf power(vf x, vf scale) {
    const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = max_each(x * scale, splat(-126.0f));
    vf shifted = x + magic, f = x - (shifted - magic);
    vf p = fma_each(f, splat(9.58283e-3f), splat(5.59064e-2f));
    p = fma_each(p, f, splat(2.40241e-1f));
    p = fma_each(p, f, splat(6.931242e-1f));
    p = fma_each(p, f, splat(1.0f));
    return (vf)((vi)p + ((vi)shifted << 23));
}
