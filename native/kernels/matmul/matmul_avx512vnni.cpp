// Floats, the quantisation of activations and the table of AVX-512; products of codes are in
// matmul_*bit_avx512vnni.cpp.
#include "kernels/matmul/matmul_avx512vnni.inl.h"

namespace pellucid::matmul {
namespace {

template <TensorType type>
INLINE __m512 weights16(const uint8_t* p) {
  if constexpr (type == TensorType::f32) return _mm512_loadu_ps(p);
  if constexpr (type == TensorType::f16) return halves16(p);
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

template <TensorType type, int rows>
__attribute__((noinline)) void float_tile(const FloatTile& tile) {
  constexpr int kBytes = type == TensorType::f32 ? 64 : 32;
  __m512 even[rows], odd[rows];
  const float* x[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    even[r] = odd[r] = _mm512_setzero_ps();
    x[r] = tile.x + r * tile.k;
  }
  const uint8_t* w = tile.weights;
  for (int64_t k = 0; k + 2 <= tile.k; k += 2, w += 2 * kBytes) {
    for (int i = 0; i < 2 * kBytes; i += 64)
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + i), _MM_HINT_T0);
    const __m512 w0 = weights16<type>(w), w1 = weights16<type>(w + kBytes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      even[r] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[r][0]), even[r]);
      odd[r] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[r][1]), odd[r]);
      x[r] += 2;
      // Or the compiler keeps one address for each row and k, more than there are registers.
      asm("" : "+r"(x[r]));
    }
  }
  if (tile.k % 2) {
    const __m512 last = weights16<type>(w);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) even[r] = _mm512_fmadd_ps(last, _mm512_set1_ps(x[r][0]), even[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) store(_mm512_add_ps(even[r], odd[r]), r, tile.sink);
}

template <TensorType type, int... rows>
TypeKernels float_table(IntList<rows...>) {
  return {sizeof...(rows), {}, {nullptr, float_tile<type, rows>...}};
}

TypeKernels kernels(TensorType type) {
  constexpr IntList<1, 2, 3, 4, 5, 6, 7, 8> rows8;
  switch (type) {
    case TensorType::f32: return float_table<TensorType::f32>(rows8);
    case TensorType::f16: return float_table<TensorType::f16>(rows8);
    case TensorType::bf16: return float_table<TensorType::bf16>(rows8);
    case TensorType::q4_0: return avx512_4bit(Params::d);
    case TensorType::q4_1: return avx512_4bit(Params::d_m);
    case TensorType::q5_0: return avx512_5bit(Params::d);
    case TensorType::q5_1: return avx512_5bit(Params::d_m);
    case TensorType::q8_0: return avx512_8bit();
    case TensorType::q4_k: return avx512_4bit(Params::k_d_m);
    case TensorType::q5_k: return avx512_5bit(Params::k_d_m);
    case TensorType::q6_k: return avx512_6bit();
  }
  return {};
}

// The largest lane, in every lane of 128 bits.
INLINE __m128i largest_lane(__m512i x) {
  const __m256i y = _mm256_max_epu32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  __m128i z = _mm_max_epu32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  z = _mm_max_epu32(z, _mm_shuffle_epi32(z, 0x4e));
  return _mm_max_epu32(z, _mm_shuffle_epi32(z, 0xb1));
}

INLINE void quantize_block(const float* x, ActivationBlock& block) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
  // Bits of floats without sign order as the floats do, infinity and NaN above all.
  const __m128i bits = largest_lane(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                                     _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(bits));
  const bool finite = _mm_cvtsi128_si32(bits) < 0x7f800000;
  const bool zero = !finite || largest < kSmallestActivation;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / largest);
  const auto keep = static_cast<__mmask16>(zero ? 0 : 0xffff);
  const __m128i q_low = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse)));
  const __m128i q_high = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse)));
  const __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(q_low), q_high, 1);
  _mm256_store_si256(reinterpret_cast<__m256i*>(block.q), q);
  // Sums of the halves, each in all lanes of its 128 bits.
  __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
  const int32_t sum_low = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
  const int32_t sum_high = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
  block.scale = finite ? zero ? 0.0f : largest / 127.0f : __builtin_nanf("");
  block.scaled_sum = block.scale * static_cast<float>(sum_low + sum_high);
  block.start = kMagicBits - 128 * (sum_low + sum_high);
  block.start_half[0] = kMagicBits - 128 * sum_low;
  block.start_half[1] = kMagicBits - 128 * sum_high;
  block.unused[0] = block.unused[1] = block.unused[2] = 0;
}

void quantize_row_avx512(const float* x, int64_t k, ActivationBlock* blocks) {
  for (int64_t b = 0; b < k / kBlock; ++b) quantize_block(x + b * kBlock, blocks[b]);
}

}  // namespace

const KernelSet kAvx512Kernels = {kernels, quantize_row_avx512};

}  // namespace pellucid::matmul
