// I32x16 in one 512-bit register.
#pragma once

namespace pellucid::PELLUCID_ISA {

struct I32x16 {
  __m512i all;
};

PELLUCID_INLINE I32x16 splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
PELLUCID_INLINE I32x16 load_words(const void* p) { return {_mm512_loadu_si512(p)}; }
template <int Shift, uint32_t Mask>
PELLUCID_INLINE I32x16 pairs(I32x16 words) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int32_t>(Mask << 16 | Mask));
  const __m512i moved = Shift == 0 ? words.all : _mm512_srli_epi32(words.all, Shift);
  return {_mm512_and_si512(moved, mask)};
}
PELLUCID_INLINE I32x16 field(I32x16 words, int shift, uint32_t mask) {
  const __m512i moved = _mm512_srl_epi32(words.all, _mm_cvtsi32_si128(shift));
  return {_mm512_and_si512(moved, _mm512_set1_epi32(static_cast<int32_t>(mask)))};
}
PELLUCID_INLINE I32x16 dot_pairs(I32x16 c, I32x16 a, I32x16 b) {
  return {_mm512_dpwssd_epi32(c.all, a.all, b.all)};
}
PELLUCID_INLINE F32x16 to_float(I32x16 x) { return _mm512_cvtepi32_ps(x.all); }
template <int Up>
PELLUCID_INLINE F32x16 float_of_bits(I32x16 words, uint32_t base) {
  return _mm512_castsi512_ps(
      _mm512_or_si512(_mm512_slli_epi32(words.all, Up), _mm512_set1_epi32(static_cast<int32_t>(base))));
}
PELLUCID_INLINE F32x16 load(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
template <int Shift>
PELLUCID_INLINE F32x16 load_nibbles(const uint8_t* p) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtepi32_ps(Shift == 0 ? _mm512_and_si512(bytes, _mm512_set1_epi32(15))
                                       : _mm512_srli_epi32(bytes, 4));
}
template <int N>
PELLUCID_INLINE F32x16 swap_lanes(F32x16 x) {
  if constexpr (N == 8) return _mm512_shuffle_f32x4(x, x, 0x4e);
  if constexpr (N == 4) return _mm512_shuffle_f32x4(x, x, 0xb1);
  return _mm512_permute_ps(x, 0x4e);
}

}  // namespace pellucid::PELLUCID_ISA
