// Blocks of a head's vector turned so that no feature stands out, and turned back.
//
// The Walsh-Hadamard transform H of n features (n = 64 or 32) is a rotation but for its size: H H = n.
// It spreads a feature that is far larger than the others over all of its block, so that few bits for
// each suffice (Chee et al. 2023, "QuIP"; Ashkboos et al. 2024, "QuaRot"). Scores do not change when
// keys and queries are both turned; sums of turned values are turned back once, at the end. All
// factors are powers of two, so nothing is rounded but the sums themselves.
#pragma once

#include "kernels/attention/attention.h"
#include "simd/i32x16.h"

namespace pellucid::PELLUCID_ISA {

// Lanes whose index has the bit N become (partner - self), the others (self + partner).
template <int N>
PELLUCID_INLINE F32x16 butterfly(F32x16 x) {
  constexpr auto sign = [](int i) { return i & N ? -1.0f : 1.0f; };
  alignas(64) static constexpr float kSigns[16] = {
      sign(0), sign(1), sign(2),  sign(3),  sign(4),  sign(5),  sign(6),  sign(7),
      sign(8), sign(9), sign(10), sign(11), sign(12), sign(13), sign(14), sign(15)};
  if constexpr (N == 1)
    return fma(x, load(kSigns), swap_pairs(x));
  else
    return fma(x, load(kSigns), swap_lanes<N>(x));
}

// H x of R registers, in place, distances from 1 up, times a power of two.
template <int R>
PELLUCID_INLINE void transform(F32x16 (&x)[R], float factor) {
  for (int r = 0; r < R; ++r)
    x[r] = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(x[r]))));
  for (int distance = 1; distance < R; distance *= 2)
    for (int r = 0; r < R; ++r) {
      if (r & distance) continue;
      const F32x16 a = x[r], b = x[r + distance];
      x[r] = a + b;
      x[r + distance] = a - b;
    }
  for (int r = 0; r < R; ++r) x[r] = x[r] * splat(factor);
}

constexpr float kRotateBack = 0.125f;  // times the factor on the way there and H H: 1
constexpr float rotate_factor(int registers) { return registers == 4 ? 0.125f : 0.25f; }

// Calls f(begin, registers) for each block of a vector of `dim` features, with room for its features.
template <class F>
PELLUCID_INLINE void for_each_block(int64_t dim, F&& f) {
  int64_t begin = 0;
  for (; begin + kKvBlock <= dim; begin += kKvBlock) {
    F32x16 x[4];
    f(begin, x);
  }
  if (begin < dim) {
    F32x16 x[2];
    f(begin, x);
  }
}

// x[from ...] of a vector of n numbers, zeros beyond.
template <int R>
PELLUCID_INLINE void load_block(const float* v, int64_t from, int64_t n, F32x16 (&x)[R]) {
  for (int r = 0; r < R; ++r) {
    const int64_t at = from + 16 * r, left = n - at;
    x[r] = left >= 16 ? load(v + at) : left > 0 ? load(v + at, static_cast<int>(left)) : zero();
  }
}

}  // namespace pellucid::PELLUCID_ISA
