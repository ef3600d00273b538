// The layout that every kernel streams: groups of 16 outputs, side by side.
//
//     weight = group, group, ...            group = parameters, codes
//
// A weight's value is d * (code - zero) + m, where d and m belong to a block of 32 (q6_k: 16) values
// of one output. Codes are unsigned. All codes of a group come first to last along K:
//
//     one block of 32 values of 16 outputs ("lanes"), in 8 steps of 4 values:
//       8 bits: 8 x 64 bytes; byte 4 * lane + t of step s is code 4 * s + t of that lane
//       4 bits: 4 x 64 bytes; the low half of byte 4 * lane + t of the s-th is code 4 * s + t, the high
//               half is code 16 + 4 * s + t
//       5 bits: as 4 bits, then 64 bytes more: bit s of byte 4 * lane + t is bit 4 of code 4 * s + t
//       6 bits: as 4 bits, then 2 x 64 bytes more: bits 2s, 2s + 1 of byte 4 * lane + t of the
//               h-th are bits 4 and 5 of code 16 * h + 4 * s + t
//
// so that a 32-bit lane of a register holds four neighbours of one output, and one broadcast of four
// activations meets 16 outputs. Parameters, for each block of 32 (simple types) or 256 (k types):
//
//       d       f16[16] d
//       d_m     f16[16] d, f16[16] m
//       k_d_m   f16[16] d, f16[16] dmin, then 8 x (u8[16] scale, u8[16] minimum)
//       k_d     f16[16] d, then 16 x i8[16] scale
//
// padded to 64 bytes. Outputs past n_out are zero throughout. f32, f16 and bf16 weights have no
// parameters; their groups are [k][16].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace pellucid::matmul {

constexpr int64_t kLanes = 16;

enum class Params : uint8_t { none, d, d_m, k_d_m, k_d };

struct Layout {
  TensorType type;
  int bits;              // of a code; 16 or 32 for floats
  int zero;              // the code that means 0
  Params params;
  int64_t raw_elements;  // a block as stored in a file
  int64_t raw_bytes;

  bool is_float() const { return params == Params::none; }
  bool is_super() const { return params == Params::k_d_m || params == Params::k_d; }
  // Bytes of codes of 16 outputs: of a block of 32, or of one k for floats.
  int64_t code_bytes() const { return kLanes * bits / 8 * (is_float() ? 1 : kBlock); }
  int64_t param_bytes() const;  // by block of 32 or 256
  // Bytes before the codes of a group of k values each.
  int64_t params_bytes(int64_t k) const;
  int64_t group_bytes(int64_t k) const;
};

// Null for a type without kernels.
const Layout* find_layout(TensorType type);
// For messages: "q4_0".
const char* type_name(TensorType type);

}  // namespace pellucid::matmul
