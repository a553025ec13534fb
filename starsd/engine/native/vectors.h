/* Vectors of 16 floats, whatever the machine has; compilers split them where they must. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { LANES = 16 };

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint8_t vb __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *from) { vf x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(float *to, vf x) { memcpy(to, &x, sizeof x); }
INLINE vf splat(float x) { return x - (vf){0}; }

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

INLINE vf fma16(vf a, vf b, vf c) {
#ifdef __AVX512F__
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

INLINE vf max16(vf a, vf b) {
    vi keep = a > b;
    return (vf)(((vi)a & keep) | ((vi)b & ~keep));
}

INLINE float sum_of(vf x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
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

/* e^x by 2^n times a polynomial (Cephes' expf); 0 below -87. */
INLINE vf exp16(vf x) {
    const vf magic = splat(12582912.0f); /* adding it rounds to an integer */
    vi alive = x > splat(-87.0f);
    x = max16(x, splat(-87.0f));
    x = -max16(-x, splat(-88.0f));
    vf n = fma16(x, splat(1.44269504f), magic) - magic;
    vf r = fma16(n, splat(-0.693359375f), x);
    r = fma16(n, splat(2.12194440e-4f), r);
    vf p = splat(1.9875691500e-4f);
    p = fma16(p, r, splat(1.3981999507e-3f));
    p = fma16(p, r, splat(8.3334519073e-3f));
    p = fma16(p, r, splat(4.1665795894e-2f));
    p = fma16(p, r, splat(1.6666665459e-1f));
    p = fma16(p, r, splat(5.0000001201e-1f));
    p = fma16(p, r * r, r + splat(1.0f));
    vi scale = (__builtin_convertvector(n, vi) + 127) << 23;
    return (vf)((vi)(p * (vf)scale) & alive);
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
