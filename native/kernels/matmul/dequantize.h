// Packed codes as floats, for activations in f32: exact values of the format, in the layout that the
// float kernels read.
#pragma once

#include "kernels/matmul/layout.h"

namespace pellucid::matmul {

// Values of blocks [begin, end) of 32 along K of one group: to [32 (end - begin)][16]. The layout is
// not one of floats. Every instruction set gives the same bits.
using DequantizeGroup = void (*)(const Layout& layout, const uint8_t* group, int64_t k, int64_t begin,
                                 int64_t end, float* to);

extern const DequantizeGroup kDequantizeGeneric;
#if defined(__x86_64__)
extern const DequantizeGroup kDequantizeAvx2;
extern const DequantizeGroup kDequantizeAvx512;
#elif defined(__aarch64__)
extern const DequantizeGroup kDequantizeNeon;
#endif

}  // namespace pellucid::matmul
