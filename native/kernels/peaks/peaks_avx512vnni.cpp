// AVX-512 with VNNI: vpdpbusd multiplies 64 pairs of bytes and adds them up in fours.
#include <immintrin.h>

#include <cstdint>

#define PELLUCID_ISA avx512

namespace pellucid::PELLUCID_ISA {
namespace {

typedef uint64_t Words __attribute__((vector_size(64)));
using Floats = __m512;
using Ints = __m512i;
constexpr int64_t kDotProducts = 64;

inline void opaque(Floats& x) { asm volatile("" : "+v"(x)); }
inline void opaque(Ints& x) { asm volatile("" : "+v"(x)); }
inline Floats as_floats(float x) { return _mm512_set1_ps(x); }
inline Ints as_ints(int8_t x) { return _mm512_set1_epi8(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Ints dot(Ints& a, Ints& b, Ints c) { return _mm512_dpbusd_epi32(c, a, b); }
inline float first(Floats x) { return _mm512_cvtss_f32(x); }
inline int64_t first(Ints x) { return _mm512_cvtsi512_si32(x); }

}  // namespace
}  // namespace pellucid::PELLUCID_ISA

#include "kernels/peaks/peaks.inl.h"

namespace pellucid {
constinit const PeakKernels kPeakKernelsAvx512 = avx512::kPeakKernels;
}
