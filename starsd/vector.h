/* Vectors of 16 numbers, whatever the machine has; compilers split them where they must. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { LANES = 16 };

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *from) { vf x; memcpy(&x, from, sizeof x); return x; }
INLINE vf splat(float x) { return x - (vf){0}; }

INLINE vf fma16(vf a, vf b, vf c) {
#ifdef __AVX512F__
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

INLINE vf max16(vf a, vf b) {
#ifdef __AVX512F__
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    vi keep = a > b;
    return (vf)(((vi)a & keep) | ((vi)b & ~keep));
#endif
}
