// Matrix products straight from a file's quantised weights.
//
// Invariants
//  1. One lane of a register owns one output; a sum runs over K in one fixed order. So the bits
//     of a row do not depend on how many rows there are, on where it stands among them, or on
//     which thread computes which outputs.
//  2. Activations are quantised by row and block, never by batch, and one numeric path serves
//     every number of rows.
//  3. Weights are packed once, into groups of outputs that the kernels stream in order. The layout
//     is the same for every instruction set, and so is the order of the arithmetic: all of them
//     give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/pool.h"
#include "kernels/dispatch.h"
#include "kernels/matmul/arena.h"

namespace pellucid {

// Numbered as in the GGUF format.
enum class TensorType : int32_t {
  f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
  q4_k = 12, q5_k = 13, q6_k = 14, bf16 = 30,
};

// How a weight wants the activations it is multiplied with.
enum class ActivationKind : uint8_t {
  int8,   // `Activations::blocks`
  bf16,   // `Activations::bf16`
  f32,    // `Activations::f32`
};

constexpr int64_t kBlock = 32;  // values in a block of activations

// A block of activations: x[i] ~ scale * q[i]. One cache line holds all that a kernel asks of it.
struct alignas(64) ActivationBlock {
  int8_t q[kBlock];     // -127 .. 127
  float scale;          // max |x| / 127
  float scaled_sum;     // scale * sum(q)
  int32_t start;        // where integer sums start: kMagicBits - 128 * sum(q)
  int32_t start_half[2];  // the same for q[0..15] and q[16..31]
  int32_t unused[3];
};
static_assert(sizeof(ActivationBlock) == 64);

// An integer n, |n| < 2^22, added to these bits and read as a float is 1.5 * 2^23 + n. So one fused
// multiply-add, n' * d - kMagic * d, both converts n and scales it, rounding once.
constexpr int32_t kMagicBits = 0x4b400000;
constexpr float kMagic = 12582912.0f;

// Rows of activations. Buffers belong to the caller, who fills what the weights at hand want:
// `quantize_row` makes the blocks of one row, so any thread may prepare any row.
struct Activations {
  int64_t rows = 0;
  int64_t k = 0;
  const float* f32 = nullptr;               // [rows][k]
  const ActivationBlock* blocks = nullptr;  // [rows][k / 32], aligned to 64 bytes
  const uint8_t* bf16 = nullptr;            // [rows][bf16_row_bytes(k)], aligned to 64 bytes
};

// A weight (n_out, k), packed.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  int64_t n_out = 0;
  int64_t k = 0;
  TensorType type = TensorType::f32;      // as stored in the file
  ActivationKind activations = ActivationKind::f32;
  Simd simd = Simd::generic;              // whose kernels multiply
  int64_t group = 0;                      // outputs in a group: the unit of work of a thread
  int64_t n_groups() const { return (n_out + group - 1) / group; }
  virtual size_t bytes() const = 0;       // bytes streamed for one reading of the whole weight

  // out[r * ldo + o] = sum_k x[r][k] W[o][k] (+ bias[o]) (+ out[r * ldo + o], if `add`), summed in
  // this order, for the outputs o of groups [group_begin, group_end) and all rows of x. `bias` is
  // [n_out] or null; `ldo` need only hold the outputs of the groups. Calls on disjoint groups may
  // run at the same time. Throws std::invalid_argument when x does not fit, naming the dimension.
  virtual void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                        int64_t group_begin, int64_t group_end) const = 0;
};

// n_out rows of k values in blocks of `type`, as they lie in a file; no alignment is needed.
struct RawWeight {
  TensorType type = TensorType::f32;
  const uint8_t* raw = nullptr;
  int64_t n_out = 0;
  int64_t k = 0;
  bool mapped = false;  // a mapping of a file: its pages are given back to the system once read
  bool bf16 = false;    // to be multiplied as bfloat16; see `prefers_bf16`
};

// Packs weights, each read once and not kept, by all threads of the pool. They lie in memory of
// `arena`, one after the other, and keep it alive. Throws std::invalid_argument naming the dimension
// when a k is no multiple of the block, or when a type has no kernels.
std::vector<std::unique_ptr<PackedWeight>> pack_weights(const std::vector<RawWeight>& weights, Simd simd,
                                                        WeightArena& arena, Pool& pool);

// The same weights for activations in f32: quantised ones are made floats piece by piece as they are
// multiplied. Throws as `pack_weights` does.
std::vector<std::unique_ptr<PackedWeight>> pack_for_floats(const std::vector<RawWeight>& weights, Simd simd,
                                                           WeightArena& arena, Pool& pool);

// Whether `pack_weights` takes this type.
bool can_pack(TensorType type);

// Whether products of this type as bfloat16 are to be had on this instruction set: where it has tiles
// for them. Accuracy gains anywhere.
bool prefers_bf16(TensorType type, Simd simd);

// The bytes of one row of k values as bfloat16 (see bf16.h), k a multiple of 32, and the row, rounded to the
// nearest, half to even. One that holds an infinity or NaN makes that row's outputs NaN, no other's, and one that
// holds 2^63 or more makes them NaN or infinite.
int64_t bf16_row_bytes(int64_t k);
void round_row_bf16(const float* x, int64_t k, uint8_t* row, Simd simd);

// The k / 32 blocks of one row of k values (k a multiple of 32): scale = max|x| / 127 by block,
// q = round(x / scale), half to even. A block whose largest magnitude is below 2^-100 is all zero.
// One that holds an infinity or NaN has scale NaN, which makes that row's outputs NaN, no other's.
void quantize_row(const float* x, int64_t k, ActivationBlock* blocks, Simd simd);

}  // namespace pellucid
