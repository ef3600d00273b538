// A model's forward pass as a list of stages over reused memory, replayed whole for every step.
//
// Invariants
//  1. The program is the same for any number of rows; memory for values is laid out anew whenever a
//     step has other numbers of rows than the one before.
//  2. Everything a step reads is checked before its first stage starts; from then on nothing throws.
//  3. Slots are memory; values are views of them. Who may share a slot was decided by the recorder.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/fork_mutex.h"
#include "core/pool.h"
#include "program/attention_stage.h"
#include "program/experts_stage.h"
#include "program/matmul_stages.h"
#include "program/row_ops.h"
#include "program/stage.h"

namespace pellucid {

class Program {
 public:
  // Throws std::invalid_argument for an instruction set that is unknown or not usable.
  Program(std::shared_ptr<Pool> pool, const std::string& simd);

  // Building. Each throws std::invalid_argument naming the dimension that does not fit.
  int add_slot(RowKind kind, int64_t bytes_per_row);
  int add_rope_table(int64_t dims, bool half);
  // own_slots: see RowStage. Steps of few rows are then computed by each thread for itself, and the
  // next stage begins at once.
  void begin_rows(RowKind kind, std::vector<int> own_slots);
  void embedding(const EmbeddingTable* table, Ids ids, Operand y);
  void take_rows(Operand x, Operand y);
  void quantize(Operand x, Quantized y);
  void quantize_rest(Operand x, Quantized blocks, Quantized y);
  void rms_norm(Operand x, std::vector<float> weight, float eps, Operand y);
  void layer_norm(Operand x, std::vector<float> weight, std::vector<float> bias, float eps, Operand y);
  void rope(Operand x, int64_t head_dim, int table, Operand y);
  // first: [width] or empty; feedback: [kv heads][dim][dim] or empty, dim <= kMostFed (KeyOffsets).
  int add_key_offsets(int64_t width, std::span<const float> first, std::span<const float> feedback);
  // Keys less the offsets of that number, if there is one and the cache keeps keys in blocks; attention
  // of the layer adds what scores lack by it.
  void store_kv(Operand k, Operand v, int64_t layer, int64_t n_kv_heads, int64_t head_dim,
                std::optional<int> offsets);
  void unary(const std::string& name, Operand x, Operand y);
  void binary(const std::string& name, Operand a, Operand b, Operand y);
  void scalar(const std::string& name, Operand x, float value, Operand y);
  void begin_products(RowKind kind, ProductInput x);
  void product(const PackedWeight* weight, std::vector<float> bias, Operand y, bool add,
               std::optional<Quantized> rest);
  void gated(RowKind kind, ProductInput x, Product gate, Product up, const std::string& act,
             GatedStage::Output y);
  void attention(AttentionSettings settings, Operand q, AttentionStage::Output y);
  void experts(ExpertsSettings settings, Operand x, Operand router_logits, Operand y);
  void set_output(RowKind kind, Operand y);
  // Names the stage that was begun last, for `stage_seconds`.
  void name_stage(std::string name);

  // Angles of positions from the table's present end on: cos and sin [n][width].
  void extend_rope_table(int table, std::span<const float> cos, std::span<const float> sin);
  int64_t rope_positions(int table) const;
  // Of key blocks of positions from the present end on: [n][width].
  void extend_key_offsets(int number, std::span<const float> values);
  int64_t key_offset_positions(int number) const;

  int64_t output_width() const { return output_.width; }
  RowKind output_kind() const { return output_kind_; }
  size_t n_stages() const { return stages_.size(); }
  const std::vector<std::string>& stage_names() const { return names_; }
  // How long each stage of the last step took, as its first thread saw it (a reading of the clock
  // costs 25 ns a stage).
  const std::vector<double>& stage_seconds() const { return seconds_; }
  size_t arena_bytes() const { return arena_bytes_; }

  // One step; `out` has the output's rows times its width. Throws std::invalid_argument naming what
  // does not fit, before anything was written.
  void run(const StepArrays& step, const KvCache& cache, std::span<float> out);

 private:
  struct Slot {
    RowKind kind;
    int64_t bytes_per_row;
  };
  void check(const Operand& x, RowKind kind, const char* what) const;
  void check_same_width(const Operand& a, const Operand& b, const char* what) const;
  void check(const Quantized& x, RowKind kind, const char* what) const;
  void check(const ProductInput& x, const PackedWeight& weight, RowKind kind) const;
  RowStage& rows(const char* what);
  void lay_out(Frame& frame, std::span<float> out);
  // What a thread has for itself while a step runs.
  struct Own {
    Frame frame;                  // the step's, but for results that are its own
    std::vector<double> seconds;  // by stage: those of its own rows
  };
  void run_stages(const Frame& frame, Own& own, Worker& worker);
  void run_joined(const Frame& frame, Own& own, size_t stage, Worker& worker);
  void split_joined_seconds(const Frame& frame);
  bool is_joined(const Frame& frame, size_t stage) const;

  std::shared_ptr<Pool> pool_;
  Kernels kernels_;
  std::vector<Slot> slots_;
  std::deque<RopeTable> rope_tables_;  // deques, since operations point into them
  std::deque<KeyOffsets> key_offsets_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<std::string> names_;
  std::vector<double> seconds_;
  std::vector<const RowStage*> row_stages_;  // by stage; null: of another kind
  RowStage* open_rows_ = nullptr;
  ProductStage* open_products_ = nullptr;
  RowKind open_kind_ = RowKind::tokens;
  ProductInput open_input_;
  std::vector<KvLayerShape> kv_layers_;
  std::vector<const KeyOffsets*> layer_offsets_;  // by layer; null: none
  int64_t least_table_rows_[2];  // of the tables that tokens and positions look into
  Operand output_;
  RowKind output_kind_ = RowKind::logits;

  ForkMutex mutex_;
  std::shared_ptr<uint8_t> arena_;
  size_t arena_bytes_ = 0;
  size_t own_at_ = 0;  // in a thread's scratch: results of its own
  std::vector<Own> own_;  // by thread
};

}  // namespace pellucid
