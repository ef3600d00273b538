// Floats, the quantisation of activations and the table of AVX2; products of codes are in
// matmul_*bit_avx2.cpp.
#include "kernels/matmul/matmul_avx2.inl.h"

namespace pellucid::matmul {
namespace {

template <TensorType type>
INLINE __m256 weights8(const uint8_t* p) {
  if constexpr (type == TensorType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (type == TensorType::f16) return halves8(p);
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
}

template <TensorType type, int rows, int parts>
INLINE void float_sums(const FloatTile& tile, int first) {
  constexpr int kBytes = type == TensorType::f32 ? 4 : 2;
  __m256 sum[2][rows][parts];
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < parts; ++p) sum[0][r][p] = sum[1][r][p] = _mm256_setzero_ps();
  const uint8_t* w = tile.weights + first * kBytes;
  const float* x = tile.x;
  const auto step = [&](int chain) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int p = 0; p < parts; ++p) {
      const __m256 w8 = weights8<type>(w + 8 * p * kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sum[chain][r][p] = _mm256_fmadd_ps(w8, _mm256_broadcast_ss(x + r * tile.k), sum[chain][r][p]);
    }
    w += 16 * kBytes;
    ++x;
  };
  for (int64_t k = 0; k + 2 <= tile.k; k += 2) {
    if constexpr (rows <= 2)
      for (int i = 0; i < 32 * kBytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + i), _MM_HINT_T0);
    step(0);
    step(1);
  }
  if (tile.k % 2) step(0);
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < parts; ++p)
      store(_mm256_add_ps(sum[0][r][p], sum[1][r][p]), r, first + 8 * p, tile.sink);
}

template <TensorType type, int rows>
__attribute__((noinline)) void float_tile(const FloatTile& tile) {
  if constexpr (rows <= 3) {
    float_sums<type, rows, 2>(tile, 0);
  } else {
    for (int first = 0; first < tile.sink.lanes; first += 8) float_sums<type, rows, 1>(tile, first);
  }
}

template <TensorType type, int... rows>
TypeKernels float_table(IntList<rows...>) {
  return {sizeof...(rows), {}, {nullptr, float_tile<type, rows>...}};
}

TypeKernels kernels(TensorType type) {
  constexpr IntList<1, 2, 3> low;             // two chains of both halves: 12 of 16 registers
  constexpr IntList<1, 2, 3, 4, 5, 6> wide;   // half a group, converted once for six rows
  switch (type) {
    case TensorType::f32: return float_table<TensorType::f32>(low);
    case TensorType::f16: return float_table<TensorType::f16>(wide);
    case TensorType::bf16: return float_table<TensorType::bf16>(wide);
    case TensorType::q4_0: return avx2_4bit(Params::d);
    case TensorType::q4_1: return avx2_4bit(Params::d_m);
    case TensorType::q5_0: return avx2_5bit(Params::d);
    case TensorType::q5_1: return avx2_5bit(Params::d_m);
    case TensorType::q8_0: return avx2_8bit();
    case TensorType::q4_k: return avx2_4bit(Params::k_d_m);
    case TensorType::q5_k: return avx2_5bit(Params::k_d_m);
    case TensorType::q6_k: return avx2_6bit();
  }
  return {};
}

// Folds the lanes of x with `op`; the result is in every lane.
template <class Op>
INLINE __m256i fold(__m256i x, Op op) {
  x = op(x, _mm256_permute2x128_si256(x, x, 1));
  x = op(x, _mm256_shuffle_epi32(x, 0x4e));
  return op(x, _mm256_shuffle_epi32(x, 0xb1));
}
INLINE int32_t first_lane(__m256i x) { return _mm_cvtsi128_si32(_mm256_castsi256_si128(x)); }

INLINE void quantize_block(const float* x, ActivationBlock& block) {
  const auto max = [](__m256i a, __m256i b) __attribute__((always_inline)) { return _mm256_max_epi32(a, b); };
  const auto add = [](__m256i a, __m256i b) __attribute__((always_inline)) { return _mm256_add_epi32(a, b); };
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256 v[4];
  __m256i largest_bits = _mm256_setzero_si256();  // bits of floats without sign order as they do
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest_bits = max(largest_bits, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  largest_bits = fold(largest_bits, max);
  const bool finite = first_lane(largest_bits) < 0x7f800000;
  const float largest = _mm256_cvtss_f32(_mm256_castsi256_ps(largest_bits));
  const bool zero = !finite || largest < kSmallestActivation;
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  const __m256i keep = _mm256_set1_epi32(zero ? 0 : -1);
  __m256i q[4];
  for (int i = 0; i < 4; ++i)
    q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
  const int32_t sum_low = first_lane(fold(_mm256_add_epi32(q[0], q[1]), add));
  const int32_t sum_high = first_lane(fold(_mm256_add_epi32(q[2], q[3]), add));
  // Packing works within 128 bits; the permutation puts the quarters in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_store_si256(reinterpret_cast<__m256i*>(block.q), _mm256_permutevar8x32_epi32(packed, order));
  block.scale = finite ? zero ? 0.0f : largest / 127.0f : __builtin_nanf("");
  block.scaled_sum = block.scale * static_cast<float>(sum_low + sum_high);
  block.start = kMagicBits - 128 * (sum_low + sum_high);
  block.start_half[0] = kMagicBits - 128 * sum_low;
  block.start_half[1] = kMagicBits - 128 * sum_high;
  block.unused[0] = block.unused[1] = block.unused[2] = 0;
}

void quantize_row_avx2(const float* x, int64_t k, ActivationBlock* blocks) {
  for (int64_t b = 0; b < k / kBlock; ++b) quantize_block(x + b * kBlock, blocks[b]);
}

}  // namespace

const KernelSet kAvx2Kernels = {kernels, quantize_row_avx2};

}  // namespace pellucid::matmul
