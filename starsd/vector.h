/* Vectors of as many numbers as the machine's registers hold. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define VECTOR 16
#elif defined __AVX2__
#define VECTOR 8
#else
#define VECTOR 4
#endif
enum { LANES = 16, VECTORS = LANES / VECTOR }; /* much is laid out in sixteens */

typedef float vf __attribute__((vector_size(4 * VECTOR)));
typedef int32_t vi __attribute__((vector_size(4 * VECTOR)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *from) { vf x; memcpy(&x, from, sizeof x); return x; }
INLINE vf splat(float x) { return x - (vf){0}; }

INLINE vf fma_each(vf a, vf b, vf c) {
#if VECTOR == 8 && defined __FMA__
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined __AVX512F__
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

INLINE vf max_each(vf a, vf b) {
#if VECTOR == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined __AVX512F__
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    vi keep = a > b;
    return (vf)(((vi)a & keep) | ((vi)b & ~keep));
#endif
}

/* 0, 1, 2, ... */
INLINE vi count_up(void) {
    static const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi x;
    memcpy(&x, numbers, sizeof x);
    return x;
}
