// Products of 16-bit integers for few rows, by AVX-512 with VNNI.
//
// A block's codes meet the bytes of an activation by VPDPBUSD; the sum, begun at -8 times that of the
// activations, fits 16 bits. Beside the block's sum of activations in the upper half of its lane it
// meets d and m, or the coarse ones, by one VPDPWSSD.
#pragma once

#include "kernels/matmul/matmul_avx512vnni.inl.h"
#include "kernels/matmul/wide.h"

namespace pellucid::matmul {
namespace {

INLINE __m512i every(const int32_t& value) { return _mm512_set1_epi32(value); }

template <bool minima>
INLINE __m512i wide_params(const uint8_t* p) {
  if constexpr (minima) return bytes64(p);
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The coarse d and m.
INLINE __m512i wide_coarse(__m512i d_m) {
  return _mm512_srai_epi16(_mm512_add_epi16(d_m, _mm512_set1_epi16(128)), 8);
}

// n scale_w scale_x + sum
INLINE __m512 add_chunk(__m512i n, __m512 scale_w, float scale_x, __m512 sum) {
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(n), scale_w), _mm512_set1_ps(scale_x), sum);
}

INLINE Sink wide_sink(const WideProduct& p, int64_t group) {
  Sink sink = p.sink;
  const int64_t first = group * 16, left = p.n_out - first;
  sink.out += first;
  if (sink.bias) sink.bias += first;
  sink.lanes = static_cast<int>(left < 16 ? left : 16);
  return sink;
}

INLINE const float& row_scale(const uint8_t* row, const WideShape& shape, int64_t chunk) {
  return reinterpret_cast<const float*>(row + shape.row_scales())[chunk];
}

// One group and rows at p.x.
template <bool minima, int rows>
__attribute__((noinline)) void wide_rows(const WideProduct& p, int64_t g, int64_t first) {
  const WideShape& shape = p.shape;
  const uint8_t* group = p.groups + g * shape.group_bytes();
  const uint8_t *param = group + shape.group_params(), *codes = group + shape.group_codes();
  const int64_t row_bytes = shape.row_bytes(), meta = shape.row_meta();
  const uint8_t* x[rows];
  __m512 sum[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    x[r] = p.x + (first + r) * row_bytes;
    sum[r] = _mm512_setzero_ps();
  }
  const __m512i nibble = _mm512_set1_epi8(15), lower = _mm512_set1_epi32(0xffff);
  for (int64_t c = 0; c < shape.chunks(); ++c) {
    const int64_t end = shape.chunk_begin(c + 1);
    __m512i n[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) n[r] = _mm512_setzero_si512();
    for (int64_t b = shape.chunk_begin(c); b < end; ++b, codes += 256, param += minima ? 64 : 32) {
      for (int i = 0; i < 256; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(codes + kAhead + i), _MM_HINT_T0);
      __m512i w[8];
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const __m512i v = bytes64(codes + 64 * s);
        w[s] = _mm512_and_si512(v, nibble);
        w[4 + s] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
      }
      const __m512i d_m = wide_params<minima>(param), coarse = wide_coarse(d_m);
      const int64_t at = b / 2 * 128 + b % 2 * 32, block_at = meta + b * 16;
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto* q = reinterpret_cast<const int8_t*>(x[r] + at);
        const auto& block = *reinterpret_cast<const WideBlock*>(x[r] + block_at);
        __m512i n_high = every(block.start_high), n_low = every(block.start_low);
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          dot4(n_high, w[s], q + 4 * s);
          dot4(n_low, w[s], q + 64 + 4 * s);
        }
        if constexpr (minima) {
          constexpr int kEither = 0xf8;  // a | (b & c)
          n_high = _mm512_ternarylogic_epi32(every(block.sum_high), n_high, lower, kEither);
          n_low = _mm512_ternarylogic_epi32(every(block.sum_low), n_low, lower, kEither);
        }
        n[r] = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(n[r], n_high, d_m), n_low, coarse);
      }
    }
    const __m512 scale = _mm512_loadu_ps(group + c * 64);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
      sum[r] = add_chunk(n[r], scale, row_scale(x[r], shape, c), sum[r]);
  }
  const Sink sink = wide_sink(p, g);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) store(sum[r], static_cast<int>(first) + r, sink);
}

}  // namespace

// Rows of the product, a few at a time.
void wide_few_rows(const WideProduct& product);
void wide_quantize_row_avx512(const float* x, int64_t k, uint8_t* row);

}  // namespace pellucid::matmul
