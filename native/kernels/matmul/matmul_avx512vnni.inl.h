// AVX-512 with VNNI: one register holds four neighbours along K of all 16 outputs, and VPDPBUSD
// multiplies them with one broadcast of four activations. The same bits as matmul_generic.cpp.
//
// Codes are put at the top of their bytes, so that every type with a zero point has it at 128:
// 16 (code - 8), 8 (code - 16) and 4 (code - 32) are all byte - 128. So one `start` of the activations
// serves them all, and the factor goes into the scale, where a power of two costs nothing.
//
// A source that includes this must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be that one.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {
namespace {

#define INLINE inline __attribute__((always_inline))

INLINE __m512i bytes64(const uint8_t* p) { return _mm512_loadu_si512(p); }

// n += four bytes of each lane of w times the four activations at q. The compiler (gcc 12) makes two
// instructions of a broadcast and a product; the processor has one.
INLINE void dot4(__m512i& n, __m512i w, const int8_t* q) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(n) : "v"(w), "m"(*reinterpret_cast<const int8_t(*)[4]>(q)));
}

INLINE __m512 halves16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Bytes of the codes of one step and of the step 16 values on.
struct Steps {
  __m512i low, high;
};

template <int bits>
INLINE Steps steps(const uint8_t* codes, int s) {
  const __m512i v = bytes64(codes + 64 * s);
  if constexpr (bits == 8) return {v, bytes64(codes + 256 + 64 * s)};
  if constexpr (bits == 4) {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(0xf0));
    return {_mm512_and_si512(_mm512_slli_epi16(v, 4), mask), _mm512_and_si512(v, mask)};
  }
  constexpr int kOr = 0xf8;  // a | (b & c)
  if constexpr (bits == 5) {
    const __m512i mask = _mm512_set1_epi8(0x78), top = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i plane = bytes64(codes + 256);
    const __m512i low = _mm512_and_si512(_mm512_slli_epi16(v, 3), mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(v, 1), mask);
    return {_mm512_ternarylogic_epi32(low, _mm512_slli_epi16(plane, 7 - s), top, kOr),
            _mm512_ternarylogic_epi32(high, _mm512_slli_epi16(plane, 3 - s), top, kOr)};
  }
  if constexpr (bits == 6) {
    const __m512i mask = _mm512_set1_epi8(0x3c), top = _mm512_set1_epi8(static_cast<char>(0xc0));
    const __m512i low = _mm512_and_si512(_mm512_slli_epi16(v, 2), mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(v, 2), mask);
    const __m512i first = _mm512_slli_epi16(bytes64(codes + 256), 6 - 2 * s);
    const __m512i second = _mm512_slli_epi16(bytes64(codes + 320), 6 - 2 * s);
    return {_mm512_ternarylogic_epi32(low, first, top, kOr),
            _mm512_ternarylogic_epi32(high, second, top, kOr)};
  }
}

// d is for bytes, so a code's d over 16, 8, 4 or 1; bias = -kMagic d.
struct Scales {
  __m512 d, bias;
  __m512 d_high, bias_high;  // k_d: of the block's second half
  __m512 minus_m;            // types with a minimum: value = d code - minus_m
};

INLINE __m512 scaled(__m512 d, const uint8_t* small) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(small));
  return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}
INLINE __m512 scaled_signed(__m512 d, const uint8_t* small) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(small));
  return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

template <Params params, int bits>
INLINE Scales scales(const uint8_t* p, int64_t block) {
  const __m512 unit = _mm512_set1_ps(1.0f / (1 << (8 - bits)));
  const __m512 magic = _mm512_set1_ps(-kMagic);
  Scales s = {};
  if constexpr (params == Params::d || params == Params::d_m) {
    p += block * (params == Params::d ? 32 : 64);
    s.d = _mm512_mul_ps(halves16(p), unit);
    if constexpr (params == Params::d_m)
      s.minus_m = _mm512_sub_ps(_mm512_set1_ps(-0.0f), halves16(p + 32));
  } else if constexpr (params == Params::k_d_m) {
    p += block / 8 * 320;
    const uint8_t* small = p + 64 + block % 8 * 32;
    s.d = scaled(_mm512_mul_ps(halves16(p), unit), small);
    s.minus_m = scaled(halves16(p + 32), small + 16);
  } else {
    p += block / 8 * 288;
    const uint8_t* small = p + 32 + block % 8 * 32;
    const __m512 d = _mm512_mul_ps(halves16(p), unit);
    s.d = scaled_signed(d, small);
    s.d_high = scaled_signed(d, small + 16);
    s.bias_high = _mm512_mul_ps(s.d_high, magic);
  }
  s.bias = _mm512_mul_ps(s.d, magic);
  return s;
}

INLINE void store(__m512 sum, int row, const Sink& sink) {
  const auto mask = static_cast<__mmask16>((1u << sink.lanes) - 1);
  float* out = sink.out + row * sink.ldo;
  if (sink.bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, sink.bias));
  if (sink.add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, out));
  _mm512_mask_storeu_ps(out, mask, sum);
}

// Bytes. With few rows weights come from memory: at one row this reads at 0.9 to 1.0 of the speed of a
// plain read (0.7 without, 0.85 at 2048, no better at 8192), at four and eight rows 1.5 times as
// fast as without.
constexpr int kAhead = 4096;

template <int bits, Params params, int rows>
__attribute__((noinline)) void block_tile(const BlockTile& tile) {
  constexpr int kCodeBytes = 64 * bits;
  constexpr bool kHalves = params == Params::k_d;
  constexpr bool kMinimum = params == Params::d_m || params == Params::k_d_m;
  constexpr bool kTwoSums = kHalves || rows <= 2;  // or to shorten the chain of dependent sums
  const ActivationBlock* x[rows];
  __m512 sum[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    x[r] = tile.x + r * tile.blocks;
    sum[r] = _mm512_setzero_ps();
  }
  const uint8_t* codes = tile.codes;
  for (int64_t b = 0; b < tile.blocks; ++b, codes += kCodeBytes) {
    for (int i = 0; i < kCodeBytes; i += 64)
      _mm_prefetch(reinterpret_cast<const char*>(codes + kAhead + i), _MM_HINT_T0);
    __m512i low[rows], high[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      low[r] = _mm512_set1_epi32(kMinimum ? kMagicBits : kHalves ? x[r]->start_half[0] : x[r]->start);
      if constexpr (kHalves) high[r] = _mm512_set1_epi32(x[r]->start_half[1]);
      else if constexpr (kTwoSums) high[r] = _mm512_setzero_si512();
    }
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const Steps w = steps<bits>(codes, s);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        dot4(low[r], w.low, x[r]->q + 4 * s);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
        dot4(kTwoSums ? high[r] : low[r], w.high, x[r]->q + 16 + 4 * s);
    }
    const Scales scale = scales<params, bits>(tile.params, b);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      if constexpr (kTwoSums && !kHalves) low[r] = _mm512_add_epi32(low[r], high[r]);
      const __m512 a = _mm512_set1_ps(x[r]->scale);
      const __m512 n = _mm512_castsi512_ps(low[r]);
      sum[r] = _mm512_fmadd_ps(_mm512_fmadd_ps(n, scale.d, scale.bias), a, sum[r]);
      if constexpr (kHalves) {
        const __m512 n_high = _mm512_castsi512_ps(high[r]);
        sum[r] = _mm512_fmadd_ps(_mm512_fmadd_ps(n_high, scale.d_high, scale.bias_high), a, sum[r]);
      }
      if constexpr (kMinimum)
        sum[r] = _mm512_fnmadd_ps(scale.minus_m, _mm512_set1_ps(x[r]->scaled_sum), sum[r]);
      ++x[r];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) store(sum[r], r, tile.sink);
}

template <int bits, Params params, int... rows>
TypeKernels block_table(IntList<rows...>) {
  return {sizeof...(rows), {nullptr, block_tile<bits, params, rows>...}, {}};
}

}  // namespace

// Types whose codes are of so many bits: a source each, so that a build spreads them over processors.
TypeKernels avx512_4bit(Params params);
TypeKernels avx512_5bit(Params params);
TypeKernels avx512_6bit();
TypeKernels avx512_8bit();

}  // namespace pellucid::matmul
