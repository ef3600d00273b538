// The kernel of dequantize.h over F32x16: a lane is an output.
#pragma once

#include "kernels/matmul/dequantize.h"
#include "simd/i32x16.h"

namespace pellucid::PELLUCID_ISA {

using matmul::kLanes;
using matmul::Layout;
using matmul::Params;

// value = d (code - zero) + m; d[0] for the first 16 values of a block, d[1] for the others.
struct BlockScales {
  F32x16 d[2], m;
};

PELLUCID_INLINE BlockScales scales_of(Params kind, const uint8_t* params, int64_t param_bytes,
                                      int64_t block) {
  const bool super = kind == Params::k_d_m || kind == Params::k_d;
  const uint8_t* p = params + (super ? block / 8 : block) * param_bytes;
  const auto* halves = reinterpret_cast<const Half*>(p);
  const F32x16 d = load(halves);
  if (!super) return {{d, d}, kind == Params::d_m ? load(halves + kLanes) : zero()};
  const int64_t sub = block % 8 * 2 * kLanes;
  if (kind == Params::k_d_m) {  // scales and minima of 6 bits
    const auto* small = reinterpret_cast<const int8_t*>(p + 4 * kLanes + sub);
    const F32x16 scaled = d * load(small), minimum = load(halves + kLanes) * load(small + kLanes);
    return {{scaled, scaled}, zero() - minimum};
  }
  const auto* small = reinterpret_cast<const int8_t*>(p + 2 * kLanes + sub);
  return {{d * load(small), d * load(small + kLanes)}, zero()};
}

// Code 4 step + t of each lane's block at `codes` (layout.h).
PELLUCID_INLINE F32x16 code_of(int bits, const uint8_t* codes, int step, int t) {
  if (bits == 8) return to_float(field(load_words(codes + 64 * step), 8 * t, 0xff));
  const int half = step < 4 ? 0 : 4;
  const F32x16 low = to_float(field(load_words(codes + 64 * (step % 4)), 8 * t + half, 15));
  if (bits == 4) return low;
  const I32x16 high = bits == 5 ? field(load_words(codes + 256), 8 * t + step, 1)
                                : field(load_words(codes + 256 + 64 * (step / 4)),
                                        8 * t + 2 * (step % 4), 3);
  return fma(to_float(high), splat(16.0f), low);
}

template <int kBits>
PELLUCID_INLINE void dequantize_blocks(const Layout& layout, const uint8_t* params,
                                       const uint8_t* codes, int64_t begin, int64_t end, float* to) {
  const F32x16 centre = splat(static_cast<float>(layout.zero));
  const bool minimum = layout.params == Params::d_m || layout.params == Params::k_d_m;
  constexpr int64_t kCodeBytes = kLanes * kBits / 8 * kBlock;
  const int64_t param_bytes = layout.param_bytes();
  for (int64_t b = begin; b < end; ++b) {
    const BlockScales scales = scales_of(layout.params, params, param_bytes, b);
    const uint8_t* block = codes + b * kCodeBytes;
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step)
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t, to += kLanes) {
        F32x16 value = (code_of(kBits, block, step, t) - centre) * scales.d[step / 4];
        if (minimum) value = value + scales.m;
        store(to, value);
      }
  }
}

void dequantize_group(const Layout& layout, const uint8_t* group, int64_t k, int64_t begin, int64_t end,
                      float* to) {
  const uint8_t* codes = group + layout.params_bytes(k);
  switch (layout.bits) {
    case 4: dequantize_blocks<4>(layout, group, codes, begin, end, to); break;
    case 5: dequantize_blocks<5>(layout, group, codes, begin, end, to); break;
    case 6: dequantize_blocks<6>(layout, group, codes, begin, end, to); break;
    default: dequantize_blocks<8>(layout, group, codes, begin, end, to); break;
  }
}

}  // namespace pellucid::PELLUCID_ISA
