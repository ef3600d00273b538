// The operations of a RowStage. Operands were checked by Program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/embedding/embedding.h"
#include "program/stage.h"

namespace pellucid {

// Angles of rotary positions, one row a position, in the form RowKernels::rope reads; grows as longer
// contexts are met.
struct RopeTable {
  int64_t dims = 0;
  bool half = true;
  std::vector<float> cos, sin;  // [positions][width()]
  int64_t width() const { return half ? dims / 2 : dims; }
  int64_t positions() const { return static_cast<int64_t>(cos.size()) / width(); }
};

enum class Ids : uint8_t { tokens, positions };

std::unique_ptr<RowOp> embedding_op(const EmbeddingTable* table, Ids ids, Operand y);
std::unique_ptr<RowOp> take_rows_op(Operand x, Operand y);
std::unique_ptr<RowOp> quantize_op(Operand x, Quantized y);
// What quantisation left of x: its values less those of `blocks`, quantised.
std::unique_ptr<RowOp> quantize_rest_op(Operand x, Quantized blocks, Quantized y);
std::unique_ptr<RowOp> rms_norm_op(Operand x, std::vector<float> weight, float eps, Operand y);
std::unique_ptr<RowOp> layer_norm_op(Operand x, std::vector<float> weight, std::vector<float> bias,
                                     float eps, Operand y);
std::unique_ptr<RowOp> rope_op(Operand x, int64_t head_dim, const RopeTable* table, Operand y);
std::unique_ptr<RowOp> store_kv_op(Operand k, Operand v, int64_t layer, const KeyOffsets* offsets);
// "gelu", "gelu_tanh", "copy"; "silu_mul", "gelu_tanh_mul", "add"; "scale", "clamp", "softcap". Throws
// std::invalid_argument for another name.
std::unique_ptr<RowOp> unary_op(const std::string& name, Operand x, Operand y);
std::unique_ptr<RowOp> binary_op(const std::string& name, Operand a, Operand b, Operand y);
std::unique_ptr<RowOp> scalar_op(const std::string& name, Operand x, float value, Operand y);

}  // namespace pellucid
