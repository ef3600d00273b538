// Products of bfloat16, for types of 4 bits and processors with tiles of them (AMX).
//
// Invariants
//  1. A weight is 2^-e (D (1 + code / 16) + M), fused in half precision, its significand then rounded from 11 bits to 8,
//     half away from zero: D = 16 d 2^e and M = (m - 16 d) 2^e in half precision (without minima M = -1.5 D), with
//     an e for each output. So two instructions round 32 weights of a block and keep what they can of each.
//  2. The bits of a half keep their place beside the sign when they become a bfloat16, whose exponent then reads 112
//     less. Activations are 2^64 times as large for it, and a product's last factor makes up for both.
//  3. A sum takes 32 values of K at a time: two chains of fused multiply-adds, of the even and of the odd
//     places, whose sum is added to the output's. Numbers below the smallest normal one are zeros. This is what
//     TDPBF16PS does, whatever the number of rows (Intel, Instruction Set Extensions Programming
//     Reference, "TDPBF16PS"), so one instruction serves them all.
//
// A row of activations: blocks x bfloat16[32], in the order of `bf16_value`, padded to an odd number of lines
// of 64 bytes, so that the rows of a tile spread over the sets of a cache. A group of 16 outputs:
//     float factor[16]
//     blocks x (half D, half M)[16], or without minima half D[16]; padded to 64 bytes
//     blocks x 256 bytes of codes, as layout.h has those of 4 bits
#pragma once

#include <cstdint>

#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {

constexpr float kBf16Largest = 8192.0f;       // of |D| and |M|
constexpr float kBf16Activations = 0x1p64f;   // what activations are multiplied with
constexpr int kBf16Exponent = 48;             // an output's factor is 2^(48 - e)

// Inlined wherever they are called: a copy of their own might be compiled for another processor.
#define BF16_INLINE __attribute__((always_inline))

// Which of a block's 32 values stands at a place: those whose codes lie at the same bits of the two halves of
// a 32-bit word are neighbours.
BF16_INLINE constexpr int bf16_value(int place) {
  const int word = place / 8, nibble = place / 2 % 4, half = place % 2;
  return nibble % 2 * 16 + word * 4 + half * 2 + nibble / 2;
}

struct Bf16Shape {
  int64_t blocks;
  bool minima;

  BF16_INLINE int64_t row_bytes() const { return (blocks | 1) * 64; }
  BF16_INLINE int64_t param_bytes() const { return minima ? 64 : 32; }
  BF16_INLINE int64_t group_params() const { return 64; }
  BF16_INLINE int64_t group_codes() const { return 64 + (blocks * param_bytes() + 63) / 64 * 64; }
  BF16_INLINE int64_t group_bytes() const { return group_codes() + blocks * 256; }
};

#undef BF16_INLINE

// Groups [group_begin, group_end) of a weight times rows.
struct Bf16Product {
  Bf16Shape shape;
  const uint8_t* groups;  // all of the weight's
  int64_t group_begin, group_end;
  int64_t n_out;
  const uint8_t* x;
  int64_t rows;
  Sink sink;  // of the weight's first output; its lanes do not count
};

struct Bf16Kernels {
  void (*round_row)(const float* x, int64_t k, uint8_t* row);
  void (*multiply)(const Bf16Product& product);
};

extern const Bf16Kernels kBf16Generic;
#if defined(__x86_64__)
extern const Bf16Kernels kBf16Amx;
#endif

// The kernels that an instruction set runs.
const Bf16Kernels& bf16_kernels(Simd simd);

// Whether a type can be kept so.
bool can_be_bf16(TensorType type);

}  // namespace pellucid::matmul
