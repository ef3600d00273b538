// The rounds of one instruction set. Its source defines PELLUCID_ISA and, in its namespace:
//   Words   a register of 8-byte words
//   Floats, fma(a, b, c), as_floats(x), first(Floats)
//   Ints, dot(a, b, c), as_ints(x), first(Ints), kDotProducts: products in one dot
//   opaque(x): x may now be anything, for all that the compiler knows
#pragma once

#include <cstring>

#include "kernels/peaks/peaks.h"

namespace pellucid::PELLUCID_ISA {
namespace {

// Two multiply-adds start in each cycle and take four or five; 12 chains and their two factors
// fit in 16 registers.
constexpr int kChains = 12;
constexpr int kSteps = 64;  // of each chain in a round

uint64_t read(const uint64_t* words, int64_t n) {
  constexpr int kSums = 8;
  constexpr int64_t kLanes = sizeof(Words) / sizeof(uint64_t);
  Words sums[kSums] = {};
  for (int64_t i = 0; i < n; i += kSums * kLanes) {
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) {
      Words x;
      std::memcpy(&x, words + i + s * kLanes, sizeof x);
      sums[s] += x;
    }
  }
  uint64_t total = 0;
  for (const Words& sum : sums)
    for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

int64_t int8(int64_t rounds) {
  Ints a = as_ints(3), b = as_ints(5), chains[kChains];
  opaque(a), opaque(b);
#pragma GCC unroll 12
  for (Ints& c : chains) opaque(c = as_ints(0));
#pragma GCC unroll 8
  for (int64_t i = 0; i < rounds * kSteps; ++i) {
#pragma GCC unroll 12
    for (Ints& c : chains) c = dot(a, b, c);
  }
  int64_t total = 0;
  for (const Ints& c : chains) total += first(c);
  return total;
}

float f32(int64_t rounds) {
  Floats a = as_floats(0.5f), b = as_floats(1.0f), chains[kChains];
  opaque(a), opaque(b);
#pragma GCC unroll 12
  for (Floats& c : chains) opaque(c = as_floats(0.0f));
#pragma GCC unroll 8
  for (int64_t i = 0; i < rounds * kSteps; ++i) {
#pragma GCC unroll 12
    for (Floats& c : chains) c = fma(c, a, b);
  }
  float total = 0;
  for (const Floats& c : chains) total += first(c);
  return total;
}

constexpr int64_t kFloatLanes = sizeof(Floats) / sizeof(float);
constexpr PeakKernels kPeakKernels = {read, int8, 2 * kChains * kSteps * kDotProducts, f32,
                                      2 * kChains * kSteps * kFloatLanes};

}  // namespace
}  // namespace pellucid::PELLUCID_ISA
