// AVX2: a register holds four neighbours along K of 8 outputs, half a group. The same bits as
// matmul_generic.cpp.
//
// VPMADDUBSW multiplies codes with a broadcast of four activations and adds pairs into 16 bits,
// where products of codes of 4 bits may pile up for a whole block: 8 steps x 2 x 15 x 127 = 30480. Wider
// codes are taken in phases that fit:
//
//     4 bits   8 steps
//     5 bits   2 x 4 steps:                             4 x 2 x 31 x 127 = 31496
//     6 bits   4 x 2 steps:                             2 x 2 x 63 x 127 = 32004
//     8 bits   8 steps with the low half of each code, 8 steps with the high half
//
// One widening VPMADDWD ends each phase; its factor brings codes to the top of a byte, so that
// every type with a zero point has it at 128 (see matmul_avx512vnni.inl.h).
//
// A source that includes this must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be that one.
#pragma once

#include <immintrin.h>

#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {
namespace {

#define INLINE inline __attribute__((always_inline))

// The compiler would gather the 16-bit sums of a block at its end and spill them, at half the
// speed (gcc 12); this pins a running sum to a register.
#define PIN(x) asm("" : "+x"(x))
// It would also keep what one phase of 8-bit codes loads for the other, on the stack; this makes a
// pointer new to it.
#define FORGET(pointer) asm("" : "+r"(pointer))

INLINE __m256i bytes32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
INLINE __m256i broadcast4(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}
INLINE __m256 halves8(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

struct Phase {
  int first, last;  // steps
  int factor;
};
template <int bits>
constexpr int kPhases = bits == 4 ? 1 : bits == 6 ? 4 : 2;

template <int bits>
constexpr Phase phase_of(int i) {
  if (bits == 4) return {0, 8, 16};
  if (bits == 5) return {4 * i, 4 * i + 4, 8};
  if (bits == 6) return {2 * i, 2 * i + 2, 4};
  return {0, 8, i == 0 ? 1 : 16};
}

// What a phase multiplies the activations of a step with; `codes` is of the half group.
template <int bits>
INLINE __m256i factors(const uint8_t* codes, int phase, int s) {
  const __m256i nibble = _mm256_set1_epi8(15);
  if constexpr (bits == 8) {
    const __m256i v = bytes32(codes + 64 * s);
    return _mm256_and_si256(phase == 0 ? v : _mm256_srli_epi16(v, 4), nibble);
  } else {
    const __m256i v = bytes32(codes + 64 * (s % 4));
    const __m256i low = _mm256_and_si256(s < 4 ? v : _mm256_srli_epi16(v, 4), nibble);
    if constexpr (bits == 5) {
      const __m256i plane = bytes32(codes + 256);
      const __m256i high = s < 4 ? _mm256_slli_epi16(plane, 4 - s) : _mm256_srli_epi16(plane, s - 4);
      return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(16)));
    }
    if constexpr (bits == 6) {
      const __m256i plane = bytes32(codes + 256 + 64 * (s / 4));
      const int by = 4 - 2 * (s % 4);
      const __m256i high = by > 0 ? _mm256_slli_epi16(plane, by) : _mm256_srli_epi16(plane, -by);
      return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(48)));
    }
    return low;
  }
}

// d is for bytes, so a code's d over 16, 8, 4 or 1; bias = -kMagic d.
struct Scales {
  __m256 d, bias;
  __m256 d_high, bias_high;  // k_d: of the block's second half
  __m256 minus_m;            // types with a minimum: value = d code - minus_m
};

INLINE __m256 scaled(__m256 d, const uint8_t* small) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(small));
  return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}
INLINE __m256 scaled_signed(__m256 d, const uint8_t* small) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(small));
  return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

// Of outputs [first, first + 8) of the group.
template <Params params, int bits>
INLINE Scales scales(const uint8_t* p, int64_t block, int first) {
  const __m256 unit = _mm256_set1_ps(1.0f / (1 << (8 - bits)));
  const __m256 magic = _mm256_set1_ps(-kMagic);
  Scales s = {};
  if constexpr (params == Params::d || params == Params::d_m) {
    p += block * (params == Params::d ? 32 : 64) + 2 * first;
    s.d = _mm256_mul_ps(halves8(p), unit);
    if constexpr (params == Params::d_m)
      s.minus_m = _mm256_xor_ps(halves8(p + 32), _mm256_set1_ps(-0.0f));
  } else if constexpr (params == Params::k_d_m) {
    p += block / 8 * 320;
    const uint8_t* small = p + 64 + block % 8 * 32 + first;
    s.d = scaled(_mm256_mul_ps(halves8(p + 2 * first), unit), small);
    s.minus_m = scaled(halves8(p + 32 + 2 * first), small + 16);
  } else {
    p += block / 8 * 288;
    const uint8_t* small = p + 32 + block % 8 * 32 + first;
    const __m256 d = _mm256_mul_ps(halves8(p + 2 * first), unit);
    s.d = scaled_signed(d, small);
    s.d_high = scaled_signed(d, small + 16);
    s.bias_high = _mm256_mul_ps(s.d_high, magic);
  }
  s.bias = _mm256_mul_ps(s.d, magic);
  return s;
}

// The first `lanes` lanes, all bits set.
INLINE __m256i lane_mask(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE void store(__m256 sum, int row, int first, const Sink& sink) {
  float* out = sink.out + row * sink.ldo + first;
  const int lanes = sink.lanes - first;
  if (lanes >= 8) {
    if (sink.bias) sum = _mm256_add_ps(sum, _mm256_loadu_ps(sink.bias + first));
    if (sink.add) sum = _mm256_add_ps(sum, _mm256_loadu_ps(out));
    _mm256_storeu_ps(out, sum);
  } else if (lanes > 0) {
    const __m256i mask = lane_mask(lanes);
    if (sink.bias) sum = _mm256_add_ps(sum, _mm256_maskload_ps(sink.bias + first, mask));
    if (sink.add) sum = _mm256_add_ps(sum, _mm256_maskload_ps(out, mask));
    _mm256_maskstore_ps(out, mask, sum);
  }
}

// With few rows weights come from memory: bytes of codes ahead, chosen on AMD Zen 1, where half and twice
// were slower. Parameters are fetched as many blocks ahead.
constexpr int kAhead = 1280;

constexpr int block_param_bytes(Params params) {
  return params == Params::d ? 32 : params == Params::d_m ? 64 : params == Params::k_d_m ? 40 : 36;
}

// `parts` halves of the group at once, from output `first` on.
template <int bits, Params params, int rows, int parts>
INLINE void block_sums(const BlockTile& tile, int first) {
  constexpr int kCodeBytes = 64 * bits;
  constexpr bool kHalves = params == Params::k_d;
  constexpr bool kMinimum = params == Params::d_m || params == Params::k_d_m;
  const ActivationBlock* x[rows];
  __m256 sum[rows][parts];
  for (int r = 0; r < rows; ++r) {
    x[r] = tile.x + r * tile.blocks;
    for (int p = 0; p < parts; ++p) sum[r][p] = _mm256_setzero_ps();
  }
  const uint8_t* codes = tile.codes + 4 * first;
  for (int64_t b = 0; b < tile.blocks; ++b, codes += kCodeBytes) {
    if constexpr (rows <= 4) {
      constexpr int kBlocksAhead = kAhead / kCodeBytes + 1, kParamBytes = block_param_bytes(params);
      for (int i = 0; i < kCodeBytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(codes + kAhead + i), _MM_HINT_T0);
      _mm_prefetch(
          reinterpret_cast<const char*>(tile.params + (b + kBlocksAhead) * kParamBytes), _MM_HINT_T0);
    }
    __m256i n[2][rows][parts];
#pragma GCC unroll 4
    for (int i = 0; i < kPhases<bits>; ++i) {
      const Phase phase = phase_of<bits>(i);
      if (bits == 8 && i > 0) {
        FORGET(codes);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) FORGET(x[r]);
      }
      __m256i n16[rows][parts];
#pragma GCC unroll 8
      for (int s = phase.first; s < phase.last; ++s) {
        __m256i w[parts];
#pragma GCC unroll 2
        for (int p = 0; p < parts; ++p) w[p] = factors<bits>(codes + 32 * p, i, s);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const __m256i a = broadcast4(x[r]->q + 4 * s);
#pragma GCC unroll 2
          for (int p = 0; p < parts; ++p) {
            const __m256i product = _mm256_maddubs_epi16(w[p], a);
            n16[r][p] = s == phase.first ? product : _mm256_add_epi16(n16[r][p], product);
            PIN(n16[r][p]);
          }
        }
      }
      const int half = kHalves ? i / 2 : 0;
      const bool opens = i == 0 || (kHalves && i == 2);
      const __m256i factor = _mm256_set1_epi16(static_cast<short>(phase.factor));
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (int p = 0; p < parts; ++p) {
          const __m256i wide = _mm256_madd_epi16(n16[r][p], factor);
          const __m256i start = _mm256_set1_epi32(kMinimum  ? kMagicBits
                                                  : kHalves ? x[r]->start_half[half]
                                                            : x[r]->start);
          n[half][r][p] = _mm256_add_epi32(wide, opens ? start : n[half][r][p]);
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < parts; ++p) {
      const Scales scale = scales<params, bits>(tile.params, b, first + 8 * p);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const __m256 a = _mm256_set1_ps(x[r]->scale);
        __m256& out = sum[r][p];
        out = _mm256_fmadd_ps(
            _mm256_fmadd_ps(_mm256_castsi256_ps(n[0][r][p]), scale.d, scale.bias), a, out);
        if constexpr (kHalves)
          out = _mm256_fmadd_ps(
              _mm256_fmadd_ps(_mm256_castsi256_ps(n[1][r][p]), scale.d_high, scale.bias_high), a, out);
        if constexpr (kMinimum)
          out = _mm256_fnmadd_ps(scale.minus_m, _mm256_set1_ps(x[r]->scaled_sum), out);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) ++x[r];
  }
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < parts; ++p) store(sum[r][p], r, first + 8 * p, tile.sink);
}

// Few rows take the whole group at once, so that the weights are one stream; more would not fit the
// registers.
template <int bits, Params params, int rows>
__attribute__((noinline)) void block_tile(const BlockTile& tile) {
  if constexpr (rows <= 4) {
    block_sums<bits, params, rows, 2>(tile, 0);
  } else {
    for (int first = 0; first < tile.sink.lanes; first += 8)
      block_sums<bits, params, rows, 1>(tile, first);
  }
}

template <int bits, Params params, int... rows>
TypeKernels block_table(IntList<rows...>) {
  return {sizeof...(rows), {nullptr, block_tile<bits, params, rows>...}, {}};
}

}  // namespace

// Types whose codes are of so many bits: a source each, so that a build spreads them over processors.
TypeKernels avx2_4bit(Params params);
TypeKernels avx2_5bit(Params params);
TypeKernels avx2_6bit();
TypeKernels avx2_8bit();

}  // namespace pellucid::matmul
