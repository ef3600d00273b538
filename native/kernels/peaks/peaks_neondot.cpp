// Arm with the dot-product extension: sdot multiplies 16 pairs of bytes and adds them up in fours.
#include <arm_neon.h>

#include <cstdint>

#define PELLUCID_ISA neon

namespace pellucid::PELLUCID_ISA {
namespace {

typedef uint64_t Words __attribute__((vector_size(16)));
using Floats = float32x4_t;
using Ints = int32x4_t;
constexpr int64_t kDotProducts = 16;

inline void opaque(Floats& x) { asm volatile("" : "+w"(x)); }
inline void opaque(Ints& x) { asm volatile("" : "+w"(x)); }
inline Floats as_floats(float x) { return vdupq_n_f32(x); }
inline Ints as_ints(int8_t x) { return vreinterpretq_s32_s8(vdupq_n_s8(x)); }
inline Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Ints dot(Ints& a, Ints& b, Ints c) {
  return vdotq_s32(c, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
inline float first(Floats x) { return vgetq_lane_f32(x, 0); }
inline int64_t first(Ints x) { return vgetq_lane_s32(x, 0); }

}  // namespace
}  // namespace pellucid::PELLUCID_ISA

#include "kernels/peaks/peaks.inl.h"

namespace pellucid {
constinit const PeakKernels kPeakKernelsNeon = neon::kPeakKernels;
}
