// I32x16 as an array: defines what the operations of every other instruction set mean.
#pragma once

namespace pellucid::PELLUCID_ISA {

struct I32x16 {
  int32_t lane[16];
};

#define PELLUCID_LANES for (int i = 0; i < 16; ++i)

inline I32x16 splat_int(int32_t x) {
  I32x16 r;
  PELLUCID_LANES r.lane[i] = x;
  return r;
}
inline I32x16 load_words(const void* p) {
  I32x16 r;
  memcpy(r.lane, p, sizeof r.lane);
  return r;
}
// Two unsigned numbers of each word, as halves of it: its bits from Shift on, Mask of each half.
template <int Shift, uint32_t Mask>
inline I32x16 pairs(I32x16 words) {
  PELLUCID_LANES words.lane[i] =
      static_cast<int32_t>((static_cast<uint32_t>(words.lane[i]) >> Shift) & (Mask << 16 | Mask));
  return words;
}
// The bits of each word from `shift` on that `mask` has.
inline I32x16 field(I32x16 words, int shift, uint32_t mask) {
  PELLUCID_LANES words.lane[i] =
      static_cast<int32_t>(static_cast<uint32_t>(words.lane[i]) >> shift & mask);
  return words;
}
// c + the products of the words' signed halves, low by low and high by high.
inline I32x16 dot_pairs(I32x16 c, I32x16 a, I32x16 b) {
  PELLUCID_LANES {
    const int32_t x = a.lane[i], y = b.lane[i];
    c.lane[i] += static_cast<int16_t>(x) * static_cast<int16_t>(y) + (x >> 16) * (y >> 16);
  }
  return c;
}
// Rounded to nearest, ties to even.
inline F32x16 to_float(I32x16 x) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = static_cast<float>(x.lane[i]);
  return r;
}
// The floats whose bits are those of each word, moved up, and `base`.
template <int Up>
inline F32x16 float_of_bits(I32x16 words, uint32_t base) {
  F32x16 r;
  PELLUCID_LANES {
    const uint32_t bits = static_cast<uint32_t>(words.lane[i]) << Up | base;
    memcpy(&r.lane[i], &bits, sizeof bits);
  }
  return r;
}
// Sixteen signed bytes.
inline F32x16 load(const int8_t* p) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = static_cast<float>(p[i]);
  return r;
}
// The low or the high halves of sixteen bytes.
template <int Shift>
inline F32x16 load_nibbles(const uint8_t* p) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = static_cast<float>(p[i] >> Shift & 15);
  return r;
}
// Lanes i ^ N, N one of 8, 4, 2.
template <int N>
inline F32x16 swap_lanes(F32x16 x) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = x.lane[i ^ N];
  return r;
}

#undef PELLUCID_LANES

}  // namespace pellucid::PELLUCID_ISA
