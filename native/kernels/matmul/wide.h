// Products of 16-bit integers, for types of 4 bits and processors with tiles of int8.
//
// Invariants
//  1. K is cut into chunks of at most 320 values, by K alone. In a chunk a weight is a whole number
//     (code - 8) d + m times its output's scale, an activation a whole number 255 high + low times
//     its row's scale; all of |weight| <= 31305, |high| <= 127, |low| <= 127.
//  2. The low part of an activation is a 255th of the whole and meets a coarse weight,
//     (code - 8) d' + m', d' and m' being d and m to the nearest 256th: between -128 and 127.
//  3. A chunk's sum of weight times high and coarse weight times low is exact and fits 32 bits. So it may be
//     reached in any order: few rows multiply codes and then each block's sum by its d and m; many rows
//     open the weights into bytes and sum a whole chunk within the tiles. The bits are the same.
//  4. A product is the sum over chunks, in their order, of that sum times the scales; the output's
//     is kept 255 times as large.
//
// A row of activations:
//     pairs of blocks x (int8 high[64], int8 low[64]), zero past K
//     blocks x WideBlock
//     chunks x float scale
// padded to an odd number of lines of 64 bytes, so that the rows of a tile spread over the sets of a
// cache. A group of 16 outputs:
//     chunks x float scale[16]
//     blocks x (int16 d, int16 m)[16], or without minima int16 d[16]; padded to 64 bytes
//     blocks x 256 bytes of codes, as layout.h has those of 4 bits
#pragma once

#include <cstdint>

#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {

constexpr int64_t kWideChunk = 10;  // blocks, at most; see wide_amx.cpp
constexpr int kWideBase = 255;
constexpr int kWideZero = 8;                  // the code that stands for 0
constexpr float kWideLargest = 32512.0f;      // of an activation: 255 * 127 + 127
constexpr float kWideWeightLargest = 31300.0f;  // that rounding d and m, and then d' and m', leaves in bounds

struct WideBlock {
  int32_t start_high, start_low;  // -8 times the sums of the block's values
  int32_t sum_high, sum_low;      // those sums in the upper 16 bits
};
static_assert(sizeof(WideBlock) == 16);

// Inlined wherever they are called: a copy of their own might be compiled for another processor.
#define WIDE_INLINE __attribute__((always_inline))

struct WideShape {
  int64_t blocks;
  bool minima;

  WIDE_INLINE int64_t pairs() const { return (blocks + 1) / 2; }
  WIDE_INLINE int64_t chunks() const { return (blocks + kWideChunk - 1) / kWideChunk; }
  // The first block of a chunk; of one past the last, the number of blocks.
  WIDE_INLINE int64_t chunk_begin(int64_t chunk) const {
    const int64_t begin = pairs() * chunk / chunks() * 2;
    return begin < blocks ? begin : blocks;
  }

  WIDE_INLINE int64_t row_meta() const { return pairs() * 128; }
  WIDE_INLINE int64_t row_scales() const { return row_meta() + blocks * 16; }
  WIDE_INLINE int64_t row_bytes() const { return ((row_scales() + chunks() * 4 + 63) / 64 | 1) * 64; }

  WIDE_INLINE int64_t param_bytes() const { return minima ? 64 : 32; }
  WIDE_INLINE int64_t group_params() const { return chunks() * 64; }
  WIDE_INLINE int64_t group_codes() const { return group_params() + (blocks * param_bytes() + 63) / 64 * 64; }
  WIDE_INLINE int64_t group_bytes() const { return group_codes() + blocks * 256; }
};

#undef WIDE_INLINE

// Groups [group_begin, group_end) of a weight times rows.
struct WideProduct {
  WideShape shape;
  const uint8_t* groups;  // all of the weight's
  int64_t group_begin, group_end;
  int64_t n_out;
  const uint8_t* x;
  int64_t rows;
  Sink sink;  // of the weight's first output; its lanes do not count
};

struct WideKernels {
  void (*quantize_row)(const float* x, int64_t k, uint8_t* row);
  void (*multiply)(const WideProduct& product);
};

extern const WideKernels kWideGeneric;
#if defined(__x86_64__)
extern const WideKernels kWideAvx512;
extern const WideKernels kWideAmx;
#endif

// The kernels that an instruction set runs.
const WideKernels& wide_kernels(Simd simd);

// Whether a type can be kept so.
bool can_be_wide(TensorType type);

}  // namespace pellucid::matmul
