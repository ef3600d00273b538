// Mixture of gated experts.
#pragma once

#include <vector>

#include "program/matmul_stages.h"

namespace pellucid {

struct ExpertsSettings {
  std::vector<const PackedWeight*> gate, up, down;  // one an expert
  int64_t n_used = 0;
  bool normalize = false;
};

// y = sum over a row's `n_used` likeliest experts of share * down(silu(gate x) * up x). The rows that
// chose an expert are gathered, so that its weights are streamed once; a row adds its experts from
// the likeliest down, whatever the others chose.
class ExpertsStage final : public Stage {
 public:
  ExpertsStage(ExpertsSettings settings, Operand x, Operand router_logits, Operand y);
  size_t scratch_bytes() const override;
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;

 private:
  struct Work {  // of one step
    std::vector<int32_t> chosen;  // [T][used] experts
    std::vector<float> share;     // [T][used]
    std::vector<int32_t> place;   // [T][used]: row among the gathered
    std::vector<int64_t> first;   // [experts + 1]: where an expert's rows start
    std::vector<float> x, hidden, parts;         // [T used][d], [T used][ffn], [T used][d]
    std::vector<ActivationBlock> x_q, hidden_q;  // the same quantised, where wanted
  };
  void choose(const Frame& frame, int64_t row, float* space) const;
  void place(int64_t rows) const;
  void gather(const Frame& frame, int64_t row) const;
  void middle(const Frame& frame, int64_t expert, int64_t unit, float* space) const;
  void down(int64_t expert, int64_t group_begin, int64_t group_end) const;
  void combine(const Frame& frame, int64_t row) const;

  ExpertsSettings settings_;
  Operand x_, router_logits_, y_;
  int64_t d_, ffn_, columns_, n_units_;
  bool x_int8_, hidden_int8_;
  mutable Work work_;
};

}  // namespace pellucid
