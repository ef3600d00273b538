// IEEE half precision, one value at a time: the twin of the processor's conversions.
#pragma once

#include <bit>
#include <cstdint>

namespace pellucid {

using Half = uint16_t;

inline float from_half(Half h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13;
  if ((h & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  // The exponent's bias moves from 15 to 127; subnormals are made normal by the same product.
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// Rounds to nearest, ties to even.
inline Half to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x47800000u)  // 65536 and more, infinity, not a number
    return static_cast<Half>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (magnitude < 0x38800000u) {  // below the smallest normal half: 0.5 has its unit in the last place
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<Half>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<Half>(sign | ((magnitude - 0x38000000u + 0x0fffu + odd) >> 13));
}

constexpr float kHalfMax = 65504.0f;

}  // namespace pellucid
