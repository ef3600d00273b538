// I32x16 in four 128-bit registers.
#pragma once

namespace pellucid::PELLUCID_ISA {

struct I32x16 {
  int32x4_t part[4];
};

#define PELLUCID_PARTS for (int i = 0; i < 4; ++i)

PELLUCID_INLINE I32x16 splat_int(int32_t x) {
  I32x16 r;
  PELLUCID_PARTS r.part[i] = vdupq_n_s32(x);
  return r;
}
PELLUCID_INLINE I32x16 load_words(const void* p) {
  I32x16 r;
  PELLUCID_PARTS r.part[i] = vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i));
  return r;
}
template <int Shift, uint32_t Mask>
PELLUCID_INLINE I32x16 pairs(I32x16 words) {
  const uint32x4_t mask = vdupq_n_u32(Mask << 16 | Mask);
  PELLUCID_PARTS {
    uint32x4_t x = vreinterpretq_u32_s32(words.part[i]);
    if constexpr (Shift != 0) x = vshrq_n_u32(x, Shift);
    words.part[i] = vreinterpretq_s32_u32(vandq_u32(x, mask));
  }
  return words;
}
PELLUCID_INLINE I32x16 field(I32x16 words, int shift, uint32_t mask) {
  PELLUCID_PARTS {
    const uint32x4_t moved = vshlq_u32(vreinterpretq_u32_s32(words.part[i]), vdupq_n_s32(-shift));
    words.part[i] = vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32(mask)));
  }
  return words;
}
PELLUCID_INLINE I32x16 dot_pairs(I32x16 c, I32x16 a, I32x16 b) {
  PELLUCID_PARTS {
    const int16x8_t x = vreinterpretq_s16_s32(a.part[i]), y = vreinterpretq_s16_s32(b.part[i]);
    const int32x4_t first = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    const int32x4_t second = vmull_s16(vget_high_s16(x), vget_high_s16(y));
    c.part[i] = vaddq_s32(c.part[i], vpaddq_s32(first, second));
  }
  return c;
}
PELLUCID_INLINE F32x16 to_float(I32x16 x) {
  F32x16 r;
  PELLUCID_PARTS r.part[i] = vcvtq_f32_s32(x.part[i]);
  return r;
}
template <int Up>
PELLUCID_INLINE F32x16 float_of_bits(I32x16 words, uint32_t base) {
  F32x16 r;
  PELLUCID_PARTS {
    const uint32x4_t moved = vshlq_n_u32(vreinterpretq_u32_s32(words.part[i]), Up);
    r.part[i] = vreinterpretq_f32_u32(vorrq_u32(moved, vdupq_n_u32(base)));
  }
  return r;
}
PELLUCID_INLINE F32x16 widen_bytes(int8x16_t bytes) {
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
PELLUCID_INLINE F32x16 load(const int8_t* p) { return widen_bytes(vld1q_s8(p)); }
template <int Shift>
PELLUCID_INLINE F32x16 load_nibbles(const uint8_t* p) {
  uint8x16_t bytes = vld1q_u8(p);
  if constexpr (Shift != 0) bytes = vshrq_n_u8(bytes, 4);
  return widen_bytes(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))));
}
template <int N>
PELLUCID_INLINE F32x16 swap_lanes(F32x16 x) {
  F32x16 r;
  PELLUCID_PARTS {
    if constexpr (N == 8) r.part[i] = x.part[i ^ 2];
    if constexpr (N == 4) r.part[i] = x.part[i ^ 1];
    if constexpr (N == 2) r.part[i] = vextq_f32(x.part[i], x.part[i], 2);
  }
  return r;
}

#undef PELLUCID_PARTS

}  // namespace pellucid::PELLUCID_ISA
