// One token from each row of scores, by the rules of the Python package `sampling`, whose order of
// stages this follows: edits (bias, penalties, bans), temperature, min-p, top-k, top-p, the draw.
//
// A row is worked on by itself. Scores are compared as they are; weights of the tokens that a filter
// ranks are float64, and sums over a whole vocabulary come from float32 weights (relative error
// 1e-6), so that a border or a draw may fall on the other side only where it is that close.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rows/rows.h"

namespace pellucid {

struct SamplingRow {
  std::span<const float> logits;
  std::span<const int32_t> banned;         // ids that are no token
  std::span<const uint32_t> mask;          // a bit for each id that may be chosen; empty: all may
  std::span<const int32_t> edited;         // ids whose score is another, each once
  std::span<const double> edited_scores;
  double temperature = 0.0;  // 0: the largest score
  double min_p = 0.0;
  int64_t top_k = 0;  // 0 and -1: off
  double top_p = 1.0;
  uint64_t seed = 0;
  uint64_t position = 0;
};

constexpr int32_t kNoDistribution = -1;  // a score is NaN or +infinity, or all are -infinity
constexpr int32_t kNoneLeft = -2;        // edits and mask ban every token

// A token, or one of the two above. Keeps its space between rows.
class RowSampler {
 public:
  explicit RowSampler(const RowKernels& kernels) : kernels_(kernels) {}
  int32_t choose(const SamplingRow& row);

 private:
  struct Candidate {
    double score;
    int32_t id;
    double weight;
  };
  int32_t first_of_all(const SamplingRow& row) const;
  bool load(const SamplingRow& row);
  void keep_only(std::span<const uint32_t> mask);
  template <class F>
  void each_of_peak(size_t p, F&& f) const;
  int32_t first_largest(const SamplingRow& row) const;
  double border(int64_t count);
  void gather(const SamplingRow& row, double border);
  void weigh(const SamplingRow& row);
  void rank();
  double total(const SamplingRow& row);
  void keep_nucleus(double wanted);
  int32_t draw(double u);
  int32_t draw_from_all(const SamplingRow& row, double u);

  const RowKernels& kernels_;
  std::vector<float> scores_;  // edited ids at -infinity
  std::vector<float> peaks_;   // each the largest of 16 scores
  std::vector<float> sorted_peaks_;
  std::vector<float> weights_;
  std::vector<double> block_sums_;
  std::vector<Candidate> candidates_;
  double largest_ = 0.0;
};

// In [0, 1): Philox4x32-10 of (seed, position), as `sampling.random.uniform`.
double philox_uniform(uint64_t seed, uint64_t position);

}  // namespace pellucid
