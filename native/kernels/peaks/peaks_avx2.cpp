// AVX2: vpmaddubsw multiplies 32 pairs of bytes into 16 bits. Eight products of a 4-bit weight fit
// there before they must be widened, so that is the fastest way to add them up.
#include <immintrin.h>

#include <cstdint>

#define PELLUCID_ISA avx2

namespace pellucid::PELLUCID_ISA {
namespace {

typedef uint64_t Words __attribute__((vector_size(32)));
using Floats = __m256;
using Ints = __m256i;
constexpr int kNarrow = 8;
constexpr int64_t kDotProducts = kNarrow * 32;

inline void opaque(Floats& x) { asm volatile("" : "+x"(x)); }
inline void opaque(Ints& x) { asm volatile("" : "+x"(x)); }
inline Floats as_floats(float x) { return _mm256_set1_ps(x); }
inline Ints as_ints(int8_t x) { return _mm256_set1_epi8(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Ints dot(Ints& a, Ints& b, Ints c) {
  Ints sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < kNarrow; ++i) {
    opaque(a);  // or one product would do for all
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
  }
  return _mm256_add_epi32(c, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
}
inline float first(Floats x) { return _mm256_cvtss_f32(x); }
inline int64_t first(Ints x) { return _mm256_cvtsi256_si32(x); }

}  // namespace
}  // namespace pellucid::PELLUCID_ISA

#include "kernels/peaks/peaks.inl.h"

namespace pellucid {
constinit const PeakKernels kPeakKernelsAvx2 = avx2::kPeakKernels;
}
