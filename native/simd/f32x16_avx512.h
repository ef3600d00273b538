// F32x16 in one 512-bit register.
#pragma once

#include <immintrin.h>

namespace pellucid::PELLUCID_ISA {

constexpr int kVectors = 31;  // F32x16 that fit the 32 registers beside a broadcast

using F32x16 = __m512;
using Mask = __mmask16;

PELLUCID_INLINE Mask lanes(int begin, int end) {
  const uint32_t below_end = end >= 16 ? 0xffffu : (1u << end) - 1u;
  const uint32_t below_begin = begin >= 16 ? 0xffffu : (1u << begin) - 1u;
  return static_cast<Mask>(below_end & ~below_begin);
}

PELLUCID_INLINE F32x16 splat(float x) { return _mm512_set1_ps(x); }
PELLUCID_INLINE F32x16 zero() { return _mm512_setzero_ps(); }
PELLUCID_INLINE F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
PELLUCID_INLINE F32x16 load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
PELLUCID_INLINE F32x16 load(const float* p, int n) {
  return _mm512_maskz_loadu_ps(lanes(0, n), p);
}
PELLUCID_INLINE void store(float* p, F32x16 x) { _mm512_storeu_ps(p, x); }
PELLUCID_INLINE void store(Half* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
PELLUCID_INLINE void store(float* p, F32x16 x, int n) {
  _mm512_mask_storeu_ps(p, lanes(0, n), x);
}

// Operators on __m512 are the compiler's own.
PELLUCID_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
PELLUCID_INLINE F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
PELLUCID_INLINE F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
PELLUCID_INLINE F32x16 abs(F32x16 x) { return _mm512_andnot_ps(splat(-0.0f), x); }
PELLUCID_INLINE F32x16 copysign(F32x16 x, F32x16 s) {
  return _mm512_or_ps(abs(x), _mm512_and_ps(splat(-0.0f), s));
}
PELLUCID_INLINE Mask less(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
PELLUCID_INLINE F32x16 select(Mask m, F32x16 yes, F32x16 no) {
  return _mm512_mask_blend_ps(m, no, yes);
}
PELLUCID_INLINE F32x16 swap_pairs(F32x16 x) { return _mm512_permute_ps(x, 0xb1); }
PELLUCID_INLINE F32x16 add_to_exponent(F32x16 y, F32x16 x) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(x), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), shifted));
}
PELLUCID_INLINE float sum(F32x16 x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
PELLUCID_INLINE float max_lane(F32x16 x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
PELLUCID_INLINE float first(F32x16 x) { return _mm512_cvtss_f32(x); }
PELLUCID_INLINE float square_root(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

}  // namespace pellucid::PELLUCID_ISA
