// Rows of an embedding table, dequantised from the file's own blocks as they are asked for: a step
// touches a few rows of a table that may be a quarter of the model.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace pellucid {

class EmbeddingTable {
 public:
  // `raw` holds n_rows rows of k values of `type` and must outlive the table. Throws
  // std::invalid_argument for a type it cannot read, a k that is no multiple of its block, or a
  // number of bytes that is not theirs.
  EmbeddingTable(TensorType type, const uint8_t* raw, int64_t bytes, int64_t n_rows, int64_t k);

  int64_t n_rows() const { return n_rows_; }
  int64_t k() const { return k_; }
  // y[k] = row i, exactly as the file's format defines it.
  void row(int64_t i, float* y) const;

 private:
  using Dequantize = void (*)(const uint8_t* blocks, int64_t k, float* y);
  const uint8_t* raw_;
  int64_t n_rows_, k_, row_bytes_ = 0;
  Dequantize dequantize_ = nullptr;
};

}  // namespace pellucid
