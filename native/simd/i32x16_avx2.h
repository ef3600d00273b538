// I32x16 in two 256-bit registers.
#pragma once

namespace pellucid::PELLUCID_ISA {

struct I32x16 {
  __m256i low, high;
};

PELLUCID_INLINE I32x16 splat_int(int32_t x) {
  const __m256i r = _mm256_set1_epi32(x);
  return {r, r};
}
PELLUCID_INLINE I32x16 load_words(const void* p) {
  const auto* parts = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(parts), _mm256_loadu_si256(parts + 1)};
}
template <int Shift, uint32_t Mask>
PELLUCID_INLINE I32x16 pairs(I32x16 words) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(Mask << 16 | Mask));
  const auto of = [&](__m256i x) { return _mm256_and_si256(_mm256_srli_epi32(x, Shift), mask); };
  return {of(words.low), of(words.high)};
}
PELLUCID_INLINE I32x16 field(I32x16 words, int shift, uint32_t mask) {
  const __m128i count = _mm_cvtsi32_si128(shift);
  const __m256i kept = _mm256_set1_epi32(static_cast<int32_t>(mask));
  return {_mm256_and_si256(_mm256_srl_epi32(words.low, count), kept),
          _mm256_and_si256(_mm256_srl_epi32(words.high, count), kept)};
}
PELLUCID_INLINE I32x16 dot_pairs(I32x16 c, I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(c.low, _mm256_madd_epi16(a.low, b.low)),
          _mm256_add_epi32(c.high, _mm256_madd_epi16(a.high, b.high))};
}
PELLUCID_INLINE F32x16 to_float(I32x16 x) {
  return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}
template <int Up>
PELLUCID_INLINE F32x16 float_of_bits(I32x16 words, uint32_t base) {
  const __m256i more = _mm256_set1_epi32(static_cast<int32_t>(base));
  const auto of = [&](__m256i x) {
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(x, Up), more));
  };
  return {of(words.low), of(words.high)};
}
PELLUCID_INLINE F32x16 load(const int8_t* p) {
  const auto part = [](const int8_t* at) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  };
  return {part(p), part(p + 8)};
}
template <int Shift>
PELLUCID_INLINE F32x16 load_nibbles(const uint8_t* p) {
  const auto part = [](const uint8_t* at) {
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bytes, Shift), _mm256_set1_epi32(15)));
  };
  return {part(p), part(p + 8)};
}
template <int N>
PELLUCID_INLINE F32x16 swap_lanes(F32x16 x) {
  if constexpr (N == 8) return {x.high, x.low};
  if constexpr (N == 4)
    return {_mm256_permute2f128_ps(x.low, x.low, 1), _mm256_permute2f128_ps(x.high, x.high, 1)};
  return {_mm256_permute_ps(x.low, 0x4e), _mm256_permute_ps(x.high, 0x4e)};
}

}  // namespace pellucid::PELLUCID_ISA
