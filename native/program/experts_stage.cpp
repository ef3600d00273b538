#include "program/experts_stage.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pellucid {
namespace {

constexpr int64_t kRows = 64;       // whose factors stay in the nearest cache
constexpr int64_t kDownGroups = 4;  // a chunk of the last product

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ExpertsStage::ExpertsStage(ExpertsSettings settings, Operand x, Operand router_logits, Operand y)
    : settings_(std::move(settings)),
      x_(x),
      router_logits_(router_logits),
      y_(y),
      d_(settings_.gate[0]->k),
      ffn_(settings_.gate[0]->n_out),
      columns_(std::lcm(settings_.gate[0]->group, kBlock)),
      n_units_(divide_up(ffn_, columns_)),
      x_int8_(settings_.gate[0]->activations == ActivationKind::int8),
      hidden_int8_(settings_.down[0]->activations == ActivationKind::int8) {}

size_t ExpertsStage::scratch_bytes() const {
  const auto experts = static_cast<int64_t>(settings_.gate.size());
  return static_cast<size_t>(std::max(2 * columns_ * kRows, experts)) * sizeof(float);
}

void ExpertsStage::prepare(const Frame& frame, int) {
  const auto rows = static_cast<size_t>(frame.rows(RowKind::tokens));
  const size_t all = rows * static_cast<size_t>(settings_.n_used);
  work_.chosen.resize(all);
  work_.share.resize(all);
  work_.place.resize(all);
  work_.first.resize(settings_.gate.size() + 1);
  work_.parts.resize(all * static_cast<size_t>(d_));
  if (x_int8_)
    work_.x_q.resize(all * static_cast<size_t>(d_ / kBlock));
  else
    work_.x.resize(all * static_cast<size_t>(d_));
  if (hidden_int8_)
    work_.hidden_q.resize(all * static_cast<size_t>(ffn_ / kBlock));
  else
    work_.hidden.resize(all * static_cast<size_t>(ffn_));
}

void ExpertsStage::run(const Frame& frame, Worker& worker) const {
  auto* space = reinterpret_cast<float*>(frame.scratch[worker.index()]);
  const int64_t rows = frame.rows(RowKind::tokens);
  const auto experts = static_cast<int64_t>(settings_.gate.size());
  worker.for_each(rows, [&](int64_t r) { choose(frame, r, space); });
  worker.for_each(1, [&](int64_t) { place(rows); });
  worker.for_each(rows, [&](int64_t r) { gather(frame, r); });
  worker.for_each(experts * n_units_,
                  [&](int64_t i) { middle(frame, i / n_units_, i % n_units_, space); });
  const int64_t groups = settings_.down[0]->n_groups(), chunks = divide_up(groups, kDownGroups);
  worker.for_each(experts * chunks, [&](int64_t i) {
    const int64_t begin = i % chunks * kDownGroups;
    down(i / chunks, begin, std::min(begin + kDownGroups, groups));
  });
  worker.for_each(rows, [&](int64_t r) { combine(frame, r); });
}

void ExpertsStage::choose(const Frame& frame, int64_t row, float* space) const {
  const int64_t n = router_logits_.width;
  const float* logits = frame.row(router_logits_, row);
  const float largest = *std::max_element(logits, logits + n);
  const float total = frame.kernels.rows->weights(logits, largest, 1.0f, n, space);
  int32_t* chosen = work_.chosen.data() + row * settings_.n_used;
  float* share = work_.share.data() + row * settings_.n_used;
  float sum = 0.0f;
  for (int64_t slot = 0; slot < settings_.n_used; ++slot) {
    int64_t best = 0;  // ties go to the lower index
    for (int64_t e = 1; e < n; ++e)
      if (space[e] > space[best]) best = e;
    chosen[slot] = static_cast<int32_t>(best);
    share[slot] = space[best] / total;
    sum += share[slot];
    space[best] = -1.0f;
  }
  if (settings_.normalize)
    for (int64_t slot = 0; slot < settings_.n_used; ++slot) share[slot] /= sum;
}

void ExpertsStage::place(int64_t rows) const {
  std::fill(work_.first.begin(), work_.first.end(), 0);
  const auto all = static_cast<size_t>(rows * settings_.n_used);
  for (size_t i = 0; i < all; ++i) ++work_.first[static_cast<size_t>(work_.chosen[i]) + 1];
  std::partial_sum(work_.first.begin(), work_.first.end(), work_.first.begin());
  for (size_t i = 0; i < all; ++i)
    work_.place[i] = static_cast<int32_t>(work_.first[static_cast<size_t>(work_.chosen[i])]++);
  // Filling moved each start to its end, which is the next one's start.
  for (size_t e = work_.first.size() - 1; e > 0; --e) work_.first[e] = work_.first[e - 1];
  work_.first[0] = 0;
}

void ExpertsStage::gather(const Frame& frame, int64_t row) const {
  const float* x = frame.row(x_, row);
  for (int64_t slot = 0; slot < settings_.n_used; ++slot) {
    const int64_t to = work_.place[row * settings_.n_used + slot];
    if (x_int8_)
      quantize_row(x, d_, work_.x_q.data() + to * (d_ / kBlock), frame.kernels.simd);
    else
      std::copy(x, x + d_, work_.x.data() + to * d_);
  }
}

void ExpertsStage::middle(const Frame& frame, int64_t expert, int64_t unit, float* space) const {
  const PackedWeight &gate_weight = *settings_.gate[expert], &up_weight = *settings_.up[expert];
  const int64_t groups = columns_ / gate_weight.group, first = unit * groups;
  const int64_t last = std::min(first + groups, gate_weight.n_groups());
  const int64_t column = unit * columns_, count = std::min(columns_, ffn_ - column);
  for (int64_t row = work_.first[expert]; row < work_.first[expert + 1]; row += kRows) {
    Activations x;
    x.rows = std::min(kRows, work_.first[expert + 1] - row);
    x.k = d_;
    if (x_int8_)
      x.blocks = work_.x_q.data() + row * (d_ / kBlock);
    else
      x.f32 = work_.x.data() + row * d_;
    float *gate = space, *up = space + columns_;
    gate_weight.multiply(x, nullptr, gate - column, 2 * columns_, false, first, last);
    up_weight.multiply(x, nullptr, up - column, 2 * columns_, false, first, last);
    for (int64_t r = row; r < row + x.rows; ++r, gate += 2 * columns_, up += 2 * columns_) {
      float* y = hidden_int8_ ? gate : work_.hidden.data() + r * ffn_ + column;
      frame.kernels.rows->silu_mul(gate, up, count, y);
      if (hidden_int8_)
        quantize_row(y, count, work_.hidden_q.data() + (r * ffn_ + column) / kBlock,
                     frame.kernels.simd);
    }
  }
}

void ExpertsStage::down(int64_t expert, int64_t group_begin, int64_t group_end) const {
  const int64_t row = work_.first[expert];
  Activations x;
  x.rows = work_.first[expert + 1] - row;
  x.k = ffn_;
  if (x.rows == 0) return;
  if (hidden_int8_)
    x.blocks = work_.hidden_q.data() + row * (ffn_ / kBlock);
  else
    x.f32 = work_.hidden.data() + row * ffn_;
  settings_.down[expert]->multiply(x, nullptr, work_.parts.data() + row * d_, d_, false, group_begin,
                                   group_end);
}

void ExpertsStage::combine(const Frame& frame, int64_t row) const {
  float* y = frame.row(y_, row);
  std::fill(y, y + d_, 0.0f);
  for (int64_t slot = 0; slot < settings_.n_used; ++slot) {
    const int64_t i = row * settings_.n_used + slot;
    frame.kernels.rows->add_scaled(work_.parts.data() + work_.place[i] * d_, work_.share[i], d_, y);
  }
}

}  // namespace pellucid
