// What the stages of a program read while one step runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "kernels/attention/attention.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rows/rows.h"

namespace pellucid {

// A value has one row for each token of the step, or for each row whose logits are wanted.
enum class RowKind : uint8_t { tokens, logits };

// The kernels of one instruction set.
struct Kernels {
  Simd simd;
  const RowKernels* rows;
  const AttentionKernels* attention;
};
Kernels kernels_for(Simd simd);

// Columns [offset, offset + width) of an f32 value whose rows are `stride` floats apart.
struct Operand {
  int slot = -1;
  int64_t stride = 0;
  int64_t offset = 0;
  int64_t width = 0;
};

// A value quantised for a product: rows of k / 32 blocks of int8, or of bfloat16.
struct Quantized {
  int slot = -1;
  int64_t k = 0;
  bool bf16 = false;
  int64_t row_bytes() const {
    return bf16 ? bf16_row_bytes(k) : k / kBlock * static_cast<int64_t>(sizeof(ActivationBlock));
  }
};

// One span of a step: rows [first_row, first_row + length) hold positions from `start` on.
struct SequenceRows {
  int64_t first_row, length, start;
  const int32_t* pages;
  int64_t n_pages;
};

// What keys in blocks are stored less of: for each key block of positions a key's features, of all kv
// heads; grows as longer contexts are met.
struct KeyOffsets {
  int64_t width = 0;
  std::vector<float> values;  // [key blocks][width]
  std::vector<float> first;   // [width], of the first sub-block's positions; empty: as their block's
  std::vector<float> feedback;  // [kv heads][dim][dim] of keys in int4 (store.inl.h); empty: none
  int64_t positions() const { return static_cast<int64_t>(values.size()) / width * kKeyBlock; }
  const float* at(int64_t position) const {
    if (position < kSubBlock && !first.empty()) return first.data();
    return values.data() + position / kKeyBlock * width;
  }
};

struct Frame {
  Kernels kernels;
  int64_t n_rows[2] = {0, 0};  // by RowKind
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* logit_rows = nullptr;
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> page_of_row;  // where each row's key and value go
  const KvCache* cache = nullptr;

  std::vector<std::byte*> slots;
  std::vector<std::byte*> scratch;  // by thread

  int64_t rows(RowKind kind) const { return n_rows[static_cast<int>(kind)]; }
  float* row(const Operand& x, int64_t r) const {
    return reinterpret_cast<float*>(slots[x.slot]) + r * x.stride + x.offset;
  }
  ActivationBlock* row(const Quantized& x, int64_t r) const {
    return reinterpret_cast<ActivationBlock*>(slots[x.slot]) + r * (x.k / kBlock);
  }
  uint8_t* bf16_row(const Quantized& x, int64_t r) const {
    return reinterpret_cast<uint8_t*>(slots[x.slot]) + r * x.row_bytes();
  }
};

// Values [n] rounded to columns [column, column + n) of row r of y, both whole blocks.
inline void quantize_columns(const Frame& frame, const float* values, int64_t n, const Quantized& y, int64_t r,
                             int64_t column) {
  const Simd simd = frame.kernels.simd;
  if (y.bf16) round_row_bf16(values, n, frame.bf16_row(y, r) + column * 2, simd);
  else quantize_row(values, n, frame.row(y, r) + column / kBlock, simd);
}

struct StepArrays {
  std::span<const int32_t> tokens, positions, logit_rows;
  std::span<const int32_t> sequences;  // [n][4]: first row, length, start, number of pages
  std::span<const int32_t> pages;      // of all sequences, one after the other
};

// What a model allows of a step.
struct StepLimits {
  int64_t vocabulary;
  int64_t positions;
  const std::vector<KvLayerShape>* layers;  // heads 0: the layer keeps nothing
};

// A frame with rows and sequences, neither kernels nor memory. Throws std::invalid_argument naming
// what of the step does not fit the cache or the model.
Frame make_frame(const StepArrays& step, const KvCache& cache, const StepLimits& limits);

}  // namespace pellucid
