#include "kernels/matmul/wide_avx512vnni.inl.h"

namespace pellucid::matmul {
namespace {

constexpr int kMostRows = 8;  // whose sums stay in registers beside a block's codes

template <bool minima>
struct Heights {
  using Rows = void (*)(const WideProduct&, int64_t, int64_t);
  static constexpr Rows rows[kMostRows + 1] = {
      nullptr,
      wide_rows<minima, 1>, wide_rows<minima, 2>, wide_rows<minima, 3>, wide_rows<minima, 4>,
      wide_rows<minima, 5>, wide_rows<minima, 6>, wide_rows<minima, 7>, wide_rows<minima, 8>,
  };
};

// The largest lane of floats without sign, as bits: infinity and NaN above all.
INLINE uint32_t largest_bits(__m512i x) { return _mm512_reduce_max_epu32(x); }

struct Scaling {
  float scale, inverse;
  __mmask16 keep;
};

INLINE Scaling scaling_of(const float* x, int64_t n) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16)
    most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
  const uint32_t bits = largest_bits(most);
  float largest;
  __builtin_memcpy(&largest, &bits, 4);
  const bool finite = bits < 0x7f800000, zero = !finite || largest < kSmallestActivation;
  Scaling s;
  s.scale = finite ? zero ? 0.0f : largest / kWideLargest : __builtin_nanf("");
  s.inverse = zero ? 0.0f : kWideLargest / largest;
  s.keep = static_cast<__mmask16>(zero ? 0 : 0xffff);
  return s;
}

struct Halves {
  __m128i high, low;
};

INLINE Halves split16(const float* x, const Scaling& s) {
  const __m512i value =
      _mm512_maskz_cvtps_epi32(s.keep, _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(s.inverse)));
  // Never near a half, as 255 is odd: the nearest whole number however the quotient is rounded.
  const __m512i high = _mm512_cvtps_epi32(
      _mm512_mul_ps(_mm512_cvtepi32_ps(value), _mm512_set1_ps(1.0f / kWideBase)));
  // value - 255 high
  const __m512i low = _mm512_add_epi32(_mm512_sub_epi32(value, _mm512_slli_epi32(high, 8)), high);
  return {_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low)};
}

INLINE int32_t sum_of(__m256i bytes) {
  const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
  __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1)));
}

INLINE void quantize_wide_block(const float* x, const Scaling& s, uint8_t* at, WideBlock& block) {
  const Halves first = split16(x, s), second = split16(x + 16, s);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(first.high), second.high, 1);
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(first.low), second.low, 1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), high);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + 64), low);
  const int32_t sum_high = sum_of(high), sum_low = sum_of(low);
  block = {-kWideZero * sum_high, -kWideZero * sum_low, sum_high * 65536, sum_low * 65536};
}

}  // namespace

void wide_quantize_row_avx512(const float* x, int64_t k, uint8_t* row) {
  const WideShape shape = {k / kBlock, false};
  if (shape.blocks % 2) {
    _mm512_storeu_si512(row + shape.row_meta() - 128, _mm512_setzero_si512());
    _mm512_storeu_si512(row + shape.row_meta() - 64, _mm512_setzero_si512());
  }
  auto* blocks = reinterpret_cast<WideBlock*>(row + shape.row_meta());
  auto* scales = reinterpret_cast<float*>(row + shape.row_scales());
  for (int64_t c = 0; c < shape.chunks(); ++c) {
    const int64_t begin = shape.chunk_begin(c), end = shape.chunk_begin(c + 1);
    const Scaling s = scaling_of(x + begin * kBlock, (end - begin) * kBlock);
    scales[c] = s.scale;
    for (int64_t b = begin; b < end; ++b)
      quantize_wide_block(x + b * kBlock, s, row + b / 2 * 128 + b % 2 * 32, blocks[b]);
  }
}

void wide_few_rows(const WideProduct& p) {
  const auto& table = p.shape.minima ? Heights<true>::rows : Heights<false>::rows;
  const int64_t strips = (p.rows + kMostRows - 1) / kMostRows;
  for (int64_t g = p.group_begin; g < p.group_end; ++g)
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t first = p.rows * s / strips;
      table[p.rows * (s + 1) / strips - first](p, g, first);
    }
}

const WideKernels kWideAvx512 = {wide_quantize_row_avx512, wide_few_rows};

}  // namespace pellucid::matmul
