// F32x16 in two 256-bit registers.
#pragma once

#include <immintrin.h>

namespace pellucid::PELLUCID_ISA {

constexpr int kVectors = 7;  // F32x16 that fit the 16 registers beside a broadcast

struct F32x16 {
  __m256 low, high;
};
using Mask = F32x16;  // all bits of a lane set or none

PELLUCID_INLINE F32x16 splat(float x) {
  const __m256 r = _mm256_set1_ps(x);
  return {r, r};
}
PELLUCID_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
PELLUCID_INLINE F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
PELLUCID_INLINE F32x16 load(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
PELLUCID_INLINE Mask lanes(int begin, int end) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i last = _mm256_set1_epi32(end), before = _mm256_set1_epi32(begin - 1);
  const __m256i above = _mm256_add_epi32(index, _mm256_set1_epi32(8));
  const auto within = [&](__m256i i) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(last, i), _mm256_cmpgt_epi32(i, before)));
  };
  return {within(index), within(above)};
}
PELLUCID_INLINE F32x16 load(const float* p, int n) {
  const Mask m = lanes(0, n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
}
PELLUCID_INLINE void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
PELLUCID_INLINE void store(Half* p, F32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
PELLUCID_INLINE void store(float* p, F32x16 x, int n) {
  const Mask m = lanes(0, n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), x.low);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), x.high);
}

PELLUCID_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
PELLUCID_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
PELLUCID_INLINE F32x16 abs(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
PELLUCID_INLINE F32x16 copysign(F32x16 x, F32x16 s) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const F32x16 a = abs(x);
  return {_mm256_or_ps(a.low, _mm256_and_ps(sign, s.low)),
          _mm256_or_ps(a.high, _mm256_and_ps(sign, s.high))};
}
PELLUCID_INLINE Mask less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
PELLUCID_INLINE F32x16 select(Mask m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
}
PELLUCID_INLINE F32x16 swap_pairs(F32x16 x) {
  return {_mm256_permute_ps(x.low, 0xb1), _mm256_permute_ps(x.high, 0xb1)};
}
PELLUCID_INLINE F32x16 add_to_exponent(F32x16 y, F32x16 x) {
  const auto add = [](__m256 to, __m256 bits) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(bits), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(to), shifted));
  };
  return {add(y.low, x.low), add(y.high, x.high)};
}
PELLUCID_INLINE float sum(F32x16 x) {
  const __m256 a = _mm256_add_ps(x.low, x.high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
PELLUCID_INLINE float max_lane(F32x16 x) {
  const __m256 a = _mm256_max_ps(x.low, x.high);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
PELLUCID_INLINE float first(F32x16 x) { return _mm256_cvtss_f32(x.low); }
PELLUCID_INLINE float square_root(float x) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

}  // namespace pellucid::PELLUCID_ISA
