// Numbers of bfloat16, and how the tiles of AMX sum their products (simd/amx_tiles.h), as plain loops.
//
// Only for sources compiled for any processor: the linker keeps one copy of each function.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace pellucid {

inline float from_bf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// A number below the smallest normal one is zero.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// To the nearest, ties to even.
inline uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(flushed(x));
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// sum + a . b, of 32 places.
inline float add_bf16_products(const uint16_t* a, const uint16_t* b, float sum) {
  float chains[2] = {0.0f, 0.0f};
  for (int place = 0; place < 32; ++place) {
    float& chain = chains[place % 2];
    chain = flushed(std::fmaf(flushed(from_bf16(a[place])), flushed(from_bf16(b[place])), chain));
  }
  return flushed(sum + flushed(chains[0] + chains[1]));
}

}  // namespace pellucid
