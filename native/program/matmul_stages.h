// Stages made of matrix products.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/stage.h"

namespace pellucid {

// What a product reads: quantised rows for a weight that wants them, floats otherwise. Float rows
// must be whole values: a stride other than the width is refused by Program.
struct ProductInput {
  Quantized blocks;
  Operand floats;
  ActivationKind kind = ActivationKind::f32;
  int64_t k() const { return kind == ActivationKind::f32 ? floats.width : blocks.k; }
  // Rows [begin, end).
  Activations rows(const Frame& frame, int64_t begin, int64_t end) const;
};

struct Product {
  const PackedWeight* weight;
  std::vector<float> bias;  // or empty
  Operand y;
  bool add;  // to what y holds: a residual
  Quantized rest = {};  // with a slot: what its input's blocks leave of it, multiplied as well
};

// y_i = x W_i^T (+ b_i) (+ y_i) for weights that share their input.
class ProductStage final : public Stage {
 public:
  ProductStage(RowKind kind, ProductInput x) : kind_(kind), x_(x) {}
  void add(Product product);
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;
  bool can_follow() const override { return true; }
  void run_after(const OwnRows& before, Worker& worker) const override;

 private:
  // begin(): see Worker::for_each.
  template <class Begin>
  void run_with(const Frame& frame, Worker& worker, Begin begin) const;
  void groups(const Frame& frame, int64_t begin, int64_t end) const;

  RowKind kind_;
  ProductInput x_;
  std::vector<Product> products_;
  int64_t n_groups_ = 0;
  int64_t chunk_ = 1;
};

// y = act(x G^T + b_G) * (x U^T + b_U), quantised for the next product if that wants it: the middle
// of a gated MLP, a few columns at a time, so that neither factor goes to memory.
class GatedStage final : public Stage {
 public:
  struct Output {
    Quantized blocks;
    Operand floats;
    bool is_quantized = false;
  };
  // act: "silu_mul" or "gelu_tanh_mul". Both weights have the same shape and group.
  GatedStage(RowKind kind, ProductInput x, Product gate, Product up, const std::string& act,
             Output y);
  size_t scratch_bytes() const override;
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;
  bool can_follow() const override { return true; }
  void run_after(const OwnRows& before, Worker& worker) const override;

 private:
  // begin(): see Worker::for_each.
  template <class Begin>
  void run_with(const Frame& frame, Worker& worker, Begin begin) const;
  void unit(const Frame& frame, int64_t row_begin, int64_t row_end, int64_t unit, float* space) const;

  RowKind kind_;
  ProductInput x_;
  Product gate_, up_;
  void (*RowKernels::*act_)(const float*, const float*, int64_t, float*);
  Output y_;
  int64_t strip_rows_;
  int64_t columns_;  // of a unit: whole groups of the weights and whole blocks of the output
  int64_t n_units_;
  int64_t row_chunk_ = 1, unit_chunk_ = 1;
};

}  // namespace pellucid
