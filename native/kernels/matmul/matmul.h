// Matrix products straight from a file's quantised weights.
//
// Invariants
//  1. One lane of a register owns one output; a sum runs over K in one fixed order. So the bits
//     of a row do not depend on how many rows there are, on where it stands among them, or on
//     which thread computes which outputs.
//  2. Activations are quantised by row and block, never by batch, and one numeric path serves
//     every number of rows.
//  3. Weights are packed once, into groups of outputs that the kernels stream in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pellucid {

// Numbered as in the GGUF format.
enum class TensorType : int32_t {
  f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
  q4_k = 12, q5_k = 13, q6_k = 14, bf16 = 30,
};

// How a kernel wants its activations.
enum class ActivationKind : uint8_t {
  int8,  // blocks of 32: int8 values, an f32 scale, the sum of the values
  f32,   // as they are
};

// Rows of activations in the form a kernel reads. Buffers belong to the caller; `quantize_row`
// fills one row, so that rows may be prepared by any thread in any order.
struct Activations {
  int64_t rows = 0;
  int64_t k = 0;                    // a multiple of 32 for int8
  const float* f32 = nullptr;       // [rows][k]
  const int8_t* q = nullptr;        // [rows][k]
  const float* scale = nullptr;     // [rows][k / 32]
  const int16_t* sum16 = nullptr;   // [rows][k / 16]: sums of 16 values
};

// A weight (n_out, k) in the layout of the kernel that the dispatch table chose.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int64_t n_out = 0;
  int64_t k = 0;
  TensorType type = TensorType::f32;      // as stored in the file
  ActivationKind activations = ActivationKind::f32;
  int64_t group = 0;                      // outputs in a group: the unit of work of a thread
  int64_t n_groups() const { return (n_out + group - 1) / group; }
  virtual size_t bytes() const = 0;       // bytes streamed for one reading of the whole weight

  // out[r * ldo + o] (+)= sum_k x[r][k] W[o][k] + bias[o], for the outputs o of groups
  // [group_begin, group_end) and all rows of x. `add` adds to what `out` holds (a residual).
  virtual void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                        int64_t group_begin, int64_t group_end) const = 0;
};

// Packs n_out rows of `type` blocks. Throws std::invalid_argument naming the dimension when k is
// no multiple of the block.
std::unique_ptr<PackedWeight> pack_weight(TensorType type, const uint8_t* raw, int64_t n_out,
                                          int64_t k);

// One row of k values (k a multiple of 32): scale = max|x| / 127 by block, q = round(x / scale),
// half to even; sum16 the sums of 16 neighbours.
void quantize_row(const float* x, int64_t k, int8_t* q, float* scale, int16_t* sum16);

}  // namespace pellucid
