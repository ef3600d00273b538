// Attention of all sequences of a step, in pieces for the threads.
#pragma once

#include <vector>

#include "program/stage.h"

namespace pellucid {

struct AttentionSettings {
  int64_t layer;  // of the cache
  int64_t n_heads, n_kv_heads, head_dim;
  float scale;
  float softcap;              // 0: none
  int64_t window;             // 0: all positions
  std::vector<float> slopes;  // [n_heads] or empty
  bool bf16 = false;          // factors of bfloat16, where the layer's cache allows it
  const KeyOffsets* offsets = nullptr;  // of keys in blocks, or none
};

class AttentionStage final : public Stage {
 public:
  // y: floats [n_heads head_dim], or the same quantised (head_dim a multiple of 32).
  struct Output {
    Quantized blocks;
    Operand floats;
    bool is_quantized = false;
  };
  AttentionStage(AttentionSettings settings, Operand q, Output y);
  size_t scratch_bytes() const override;
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;

 private:
  // Queries of one kv head of one sequence over some key blocks. `state` >= 0: each block's state
  // goes by itself to `states_`, for another piece of work to merge; otherwise the blocks are all.
  struct Piece {
    int32_t sequence, kv_head;
    int64_t first_query, n_queries;
    int64_t first_block, end_block;
    int64_t state;
  };

  const KvLayer& layer(const Frame& frame) const;
  AttentionItem item(const Frame& frame, const Piece& piece) const;
  void cut(const Frame& frame, int64_t sequence, int64_t kv_head, int64_t blocks_each);
  void compute(const Frame& frame, const Piece& piece, float* scratch) const;
  void merge(const Frame& frame, const Piece& whole, float* scratch) const;
  void write(const Frame& frame, const Piece& piece, const float* states, float* head) const;

  AttentionSettings settings_;
  Operand q_;
  Output y_;
  std::vector<Piece> pieces_, merges_;
  mutable std::vector<float> states_;  // each piece writes its own part
};

}  // namespace pellucid
