// F32x16 in four 128-bit registers.
#pragma once

#include <arm_neon.h>

namespace pellucid::PELLUCID_ISA {

constexpr int kVectors = 7;  // F32x16 that fit the 32 registers beside a broadcast

struct F32x16 {
  float32x4_t part[4];
};
struct Mask {
  uint32x4_t part[4];
};

#define PELLUCID_PARTS for (int i = 0; i < 4; ++i)

PELLUCID_INLINE F32x16 splat(float x) {
  F32x16 r;
  PELLUCID_PARTS r.part[i] = vdupq_n_f32(x);
  return r;
}
PELLUCID_INLINE F32x16 zero() { return splat(0.0f); }
PELLUCID_INLINE F32x16 load(const float* p) {
  F32x16 r;
  PELLUCID_PARTS r.part[i] = vld1q_f32(p + 4 * i);
  return r;
}
PELLUCID_INLINE F32x16 load(const Half* p) {
  F32x16 r;
  PELLUCID_PARTS r.part[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  return r;
}
PELLUCID_INLINE F32x16 load(const float* p, int n) {
  float held[16] = {};
  for (int i = 0; i < n; ++i) held[i] = p[i];
  return load(held);
}
PELLUCID_INLINE void store(float* p, F32x16 x) { PELLUCID_PARTS vst1q_f32(p + 4 * i, x.part[i]); }
PELLUCID_INLINE void store(Half* p, F32x16 x) {
  PELLUCID_PARTS vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.part[i])));
}
PELLUCID_INLINE void store(float* p, F32x16 x, int n) {
  float held[16];
  store(held, x);
  for (int i = 0; i < n; ++i) p[i] = held[i];
}

PELLUCID_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  PELLUCID_PARTS a.part[i] = vaddq_f32(a.part[i], b.part[i]);
  return a;
}
PELLUCID_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  PELLUCID_PARTS a.part[i] = vsubq_f32(a.part[i], b.part[i]);
  return a;
}
PELLUCID_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  PELLUCID_PARTS a.part[i] = vmulq_f32(a.part[i], b.part[i]);
  return a;
}
PELLUCID_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  PELLUCID_PARTS a.part[i] = vdivq_f32(a.part[i], b.part[i]);
  return a;
}
PELLUCID_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  PELLUCID_PARTS c.part[i] = vfmaq_f32(c.part[i], a.part[i], b.part[i]);
  return c;
}
PELLUCID_INLINE Mask less(F32x16 a, F32x16 b) {
  Mask m;
  PELLUCID_PARTS m.part[i] = vcltq_f32(a.part[i], b.part[i]);
  return m;
}
PELLUCID_INLINE Mask lanes(int begin, int end) {
  const uint32_t first[4] = {0, 1, 2, 3};
  const int32x4_t index = vreinterpretq_s32_u32(vld1q_u32(first));
  Mask m;
  PELLUCID_PARTS {
    const int32x4_t here = vaddq_s32(index, vdupq_n_s32(4 * i));
    m.part[i] = vandq_u32(vcgeq_s32(here, vdupq_n_s32(begin)), vcltq_s32(here, vdupq_n_s32(end)));
  }
  return m;
}
PELLUCID_INLINE F32x16 select(Mask m, F32x16 yes, F32x16 no) {
  PELLUCID_PARTS no.part[i] = vbslq_f32(m.part[i], yes.part[i], no.part[i]);
  return no;
}
// By comparison, since vminq and vmaxq treat what is not a number in another way.
PELLUCID_INLINE F32x16 min(F32x16 a, F32x16 b) { return select(less(a, b), a, b); }
PELLUCID_INLINE F32x16 max(F32x16 a, F32x16 b) { return select(less(b, a), a, b); }
PELLUCID_INLINE F32x16 abs(F32x16 x) {
  PELLUCID_PARTS x.part[i] = vabsq_f32(x.part[i]);
  return x;
}
PELLUCID_INLINE F32x16 copysign(F32x16 x, F32x16 s) {
  PELLUCID_PARTS x.part[i] = vbslq_f32(vdupq_n_u32(0x80000000u), s.part[i], x.part[i]);
  return x;
}
PELLUCID_INLINE F32x16 swap_pairs(F32x16 x) {
  PELLUCID_PARTS x.part[i] = vrev64q_f32(x.part[i]);
  return x;
}
PELLUCID_INLINE F32x16 add_to_exponent(F32x16 y, F32x16 x) {
  PELLUCID_PARTS {
    const uint32x4_t shifted = vshlq_n_u32(vreinterpretq_u32_f32(x.part[i]), 23);
    y.part[i] = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(y.part[i]), shifted));
  }
  return y;
}
PELLUCID_INLINE float sum(F32x16 x) {
  const float32x4_t a = vaddq_f32(x.part[0], x.part[2]), b = vaddq_f32(x.part[1], x.part[3]);
  const float32x4_t c = vaddq_f32(a, b);
  const float32x2_t d = vadd_f32(vget_low_f32(c), vget_high_f32(c));
  return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
PELLUCID_INLINE float max_lane(F32x16 x) {
  float held[16];
  store(held, x);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) held[i] = held[i] > held[i + half] ? held[i] : held[i + half];
  return held[0];
}
PELLUCID_INLINE float first(F32x16 x) { return vgetq_lane_f32(x.part[0], 0); }
PELLUCID_INLINE float square_root(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

#undef PELLUCID_PARTS

}  // namespace pellucid::PELLUCID_ISA
