// Scales of quantised blocks by weighted least squares: the same searches as the NumPy ones
// (pellucid/quant/least_squares.py, small_blocks.py, super_blocks.py), which say why and are what the
// tests compare these with. Sums are taken in another order, so that a block in a few thousand finds
// another, equally good scale.
//
// `x` and the weights `w` of its squared errors are float32, a block after another; all weights are
// above 0. Scales come as the float32 values of halves, infinite where a half does not reach.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dispatch.h"

namespace pellucid::quant {

// Grid positions that the largest value, or the range, is tried at.
using Steps = std::span<const float>;

struct Searches {
  // Blocks of 32, x = d * q with q from `low` to `high`; `plain` is where plain rounding puts the
  // value of largest magnitude. d [n], q [n, 32].
  void (*symmetric_blocks)(int64_t n, const float* x, const float* w, int low, int high, int plain,
                           Steps steps, float* d, int8_t* q);

  // Blocks of 32, x = d * q + m with q from 0 to `levels`. d, m [n], q [n, 32].
  void (*affine_blocks)(int64_t n, const float* x, const float* w, int levels, Steps steps, float* d,
                        float* m, uint8_t* q);

  // Super-blocks of 16 groups of 16, x = d * scales * q with q from -32 to 31 and scales from -128
  // to 127. d [n], scales [n, 16], q [n, 256].
  void (*symmetric_supers)(int64_t n, const float* x, const float* w, Steps steps, float* d,
                           int8_t* scales, int8_t* q);

  // Super-blocks of 8 groups of 32, x = d * scales * q - dmin * minima with q from 0 to `levels`,
  // scales and minima from 0 to 63. d, dmin [n], scales, minima [n, 8], q [n, 256].
  void (*affine_supers)(int64_t n, const float* x, const float* w, int levels, Steps steps, float* d,
                        float* dmin, uint8_t* scales, uint8_t* minima, uint8_t* q);
};

extern const Searches kSearchesGeneric;
#if defined(__x86_64__) || defined(_M_X64)
extern const Searches kSearchesAvx2;
#endif

const Searches& searches(Simd simd);

}  // namespace pellucid::quant
