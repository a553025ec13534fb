/* 8 bits: tiles of 16 outputs by 64 inputs, [quad][output][4], each weight plus 128; a scale per
 * output.
 *
 * Rows become whole numbers of 15 bits with a scale per row, so that what is lost is lost in the
 * weights alone. Sums of whole numbers are exact.
 */
#pragma once
#include "matrix.h"

enum { DEEP = 64, LEVELS = 127 * 128 };

INLINE int deep(int inputs) { return (inputs + DEEP - 1) / DEEP * DEEP; }

INLINE const uint8_t *whole_at(const matrix *w, int column) {
    return w->tiles + (size_t)column * deep(w->inputs) * LANES;
}

#ifdef __AVX512VNNI__
#include "bytes.h"
#else
#include "words.h"
#endif
