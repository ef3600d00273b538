// F32x16 as an array: defines what the operations of every other instruction set mean.
#pragma once

#include <math.h>
#include <string.h>

namespace pellucid::PELLUCID_ISA {

constexpr int kVectors = 7;  // F32x16 that a kernel may keep in registers

struct F32x16 {
  float lane[16];
};
struct Mask {
  bool lane[16];
};

#define PELLUCID_LANES for (int i = 0; i < 16; ++i)

inline F32x16 splat(float x) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = x;
  return r;
}
inline F32x16 zero() { return splat(0.0f); }
inline F32x16 load(const float* p) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = p[i];
  return r;
}
inline F32x16 load(const Half* p) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = from_half(p[i]);
  return r;
}
// The first n lanes, the others zero.
inline F32x16 load(const float* p, int n) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = i < n ? p[i] : 0.0f;
  return r;
}
inline void store(float* p, F32x16 x) { PELLUCID_LANES p[i] = x.lane[i]; }
inline void store(Half* p, F32x16 x) { PELLUCID_LANES p[i] = to_half(x.lane[i]); }
inline void store(float* p, F32x16 x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.lane[i];
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] += b.lane[i];
  return a;
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] -= b.lane[i];
  return a;
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] *= b.lane[i];
  return a;
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] /= b.lane[i];
  return a;
}
// a b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  PELLUCID_LANES c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
// Of numbers and not-a-number, the second operand, as x86 has it.
inline F32x16 min(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
inline F32x16 max(F32x16 a, F32x16 b) {
  PELLUCID_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
inline F32x16 abs(F32x16 x) {
  PELLUCID_LANES x.lane[i] = fabsf(x.lane[i]);
  return x;
}
// |x| with the sign of s.
inline F32x16 copysign(F32x16 x, F32x16 s) {
  PELLUCID_LANES x.lane[i] = copysignf(x.lane[i], s.lane[i]);
  return x;
}
inline Mask less(F32x16 a, F32x16 b) {
  Mask m;
  PELLUCID_LANES m.lane[i] = a.lane[i] < b.lane[i];
  return m;
}
// Lanes begin to end - 1.
inline Mask lanes(int begin, int end) {
  Mask m;
  PELLUCID_LANES m.lane[i] = i >= begin && i < end;
  return m;
}
inline F32x16 select(Mask m, F32x16 yes, F32x16 no) {
  PELLUCID_LANES no.lane[i] = m.lane[i] ? yes.lane[i] : no.lane[i];
  return no;
}
// Lanes 1 0 3 2 5 4 ...
inline F32x16 swap_pairs(F32x16 x) {
  F32x16 r;
  PELLUCID_LANES r.lane[i] = x.lane[i ^ 1];
  return r;
}
// The bits of each lane of x shifted up by 23 and added to those of y: y 2^n, see exp.
inline F32x16 add_to_exponent(F32x16 y, F32x16 x) {
  PELLUCID_LANES {
    uint32_t bits, shifted;
    memcpy(&bits, &y.lane[i], 4);
    memcpy(&shifted, &x.lane[i], 4);
    bits += shifted << 23;
    memcpy(&y.lane[i], &bits, 4);
  }
  return y;
}
inline float sum(F32x16 x) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) x.lane[i] += x.lane[i + half];
  return x.lane[0];
}
inline float max_lane(F32x16 x) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i)
      x.lane[i] = x.lane[i] > x.lane[i + half] ? x.lane[i] : x.lane[i + half];
  return x.lane[0];
}
inline float first(F32x16 x) { return x.lane[0]; }
inline float square_root(float x) { return sqrtf(x); }

#undef PELLUCID_LANES

}  // namespace pellucid::PELLUCID_ISA
