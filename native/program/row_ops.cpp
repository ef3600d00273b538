#include "program/row_ops.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace pellucid {
namespace {

// f(frame, row) for each row.
template <class F>
class EachRow final : public RowOp {
 public:
  explicit EachRow(F f) : f_(std::move(f)) {}
  void run(const Frame& frame, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; ++r) f_(frame, r);
  }

 private:
  F f_;
};

template <class F>
std::unique_ptr<RowOp> each_row(F f) {
  return std::make_unique<EachRow<F>>(std::move(f));
}

}  // namespace

void RowStage::prepare(const Frame& frame, int threads) {
  // Several chunks a thread, so that a slow one does not hold the others up. Sixteen rows of a prompt's
  // keys lie side by side in the cache: with fewer two threads write the same lines, and take twice as long.
  chunk_ = std::clamp<int64_t>(frame.rows(kind_) / (threads * 4), 1, 16);
}

void RowStage::run(const Frame& frame, Worker& worker) const {
  const int64_t all = frame.rows(kind_);
  worker.for_each((all + chunk_ - 1) / chunk_, [&](int64_t i) {
    const int64_t begin = i * chunk_, end = std::min(begin + chunk_, all);
    rows(frame, begin, end);
  });
}

void RowStage::rows(const Frame& frame, int64_t begin, int64_t end) const {
  for (const auto& op : ops_) op->run(frame, begin, end);
}

void OwnRows::compute() const {
  const auto before = std::chrono::steady_clock::now();
  stage_.rows(frame_, 0, frame_.rows(stage_.kind()));
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

void Stage::run_after(const OwnRows& before, Worker& worker) const { run(before.frame(), worker); }

std::unique_ptr<RowOp> embedding_op(const EmbeddingTable* table, Ids ids, Operand y) {
  return each_row([=](const Frame& frame, int64_t r) {
    const int32_t id = (ids == Ids::tokens ? frame.tokens : frame.positions)[r];
    table->row(id, frame.row(y, r));
  });
}

std::unique_ptr<RowOp> take_rows_op(Operand x, Operand y) {
  return each_row([=](const Frame& frame, int64_t r) {
    std::memcpy(frame.row(y, r), frame.row(x, frame.logit_rows[r]), sizeof(float) * x.width);
  });
}

std::unique_ptr<RowOp> quantize_op(Operand x, Quantized y) {
  return each_row([=](const Frame& frame, int64_t r) {
    quantize_columns(frame, frame.row(x, r), x.width, y, r, 0);
  });
}

std::unique_ptr<RowOp> quantize_rest_op(Operand x, Quantized blocks, Quantized y) {
  return each_row([=](const Frame& frame, int64_t r) {
    constexpr int64_t kAtATime = 16;  // blocks
    float rest[kAtATime * kBlock];
    const float* from = frame.row(x, r);
    const ActivationBlock* known = frame.row(blocks, r);
    ActivationBlock* to = frame.row(y, r);
    for (int64_t left = blocks.k / kBlock; left > 0; left -= kAtATime) {
      const int64_t count = std::min(left, kAtATime);
      for (int64_t b = 0; b < count; ++b, ++known, from += kBlock)
        for (int64_t i = 0; i < kBlock; ++i)
          rest[b * kBlock + i] = from[i] - known->scale * static_cast<float>(known->q[i]);
      quantize_row(rest, count * kBlock, to, frame.kernels.simd);
      to += count;
    }
  });
}

std::unique_ptr<RowOp> rms_norm_op(Operand x, std::vector<float> weight, float eps, Operand y) {
  return each_row([=, w = std::move(weight)](const Frame& frame, int64_t r) {
    const float* from = frame.row(x, r);
    float* to = frame.row(y, r);
    const auto n = static_cast<int64_t>(w.size());  // a head, or the whole row
    for (int64_t i = 0; i < x.width; i += n)
      frame.kernels.rows->rms_norm(from + i, w.data(), n, eps, to + i);
  });
}

std::unique_ptr<RowOp> layer_norm_op(Operand x, std::vector<float> weight, std::vector<float> bias,
                                     float eps, Operand y) {
  return each_row([=, w = std::move(weight), b = std::move(bias)](const Frame& frame, int64_t r) {
    frame.kernels.rows->layer_norm(frame.row(x, r), w.data(), b.empty() ? nullptr : b.data(), x.width,
                                   eps, frame.row(y, r));
  });
}

std::unique_ptr<RowOp> rope_op(Operand x, int64_t head_dim, const RopeTable* table, Operand y) {
  return each_row([=](const Frame& frame, int64_t r) {
    const int64_t at = frame.positions[r] * table->width();
    const float *from = frame.row(x, r), *cos = table->cos.data() + at, *sin = table->sin.data() + at;
    float* to = frame.row(y, r);
    for (int64_t i = 0; i < x.width; i += head_dim)
      frame.kernels.rows->rope(from + i, cos, sin, head_dim, table->dims, table->half, to + i);
  });
}

std::unique_ptr<RowOp> store_kv_op(Operand k, Operand v, int64_t layer, const KeyOffsets* offsets) {
  return each_row([=](const Frame& frame, int64_t r) {
    const KvLayer& where = frame.cache->layers()[layer];
    const float *key = frame.row(k, r), *value = frame.row(v, r);
    const float* offset =
        offsets != nullptr && where.keys.in_blocks() ? offsets->at(frame.positions[r]) : nullptr;
    const int64_t slot = frame.positions[r] % frame.cache->page_size();
    const float* feedback = offset != nullptr && where.keys.type == KvType::int4 && !offsets->feedback.empty()
                                ? offsets->feedback.data()
                                : nullptr;
    for (int64_t h = 0; h < where.n_kv_heads; ++h) {
      const int64_t at = h * where.head_dim, square = where.keys.dim * where.keys.dim;
      frame.kernels.attention->store(key + at, offset == nullptr ? nullptr : offset + at,
                                     feedback == nullptr ? nullptr : feedback + h * square, value + at,
                                     where, h, frame.page_of_row[r], slot);
    }
  });
}

std::unique_ptr<RowOp> unary_op(const std::string& name, Operand x, Operand y) {
  if (name == "copy")
    return each_row([=](const Frame& frame, int64_t r) {
      std::memcpy(frame.row(y, r), frame.row(x, r), sizeof(float) * x.width);
    });
  void (*RowKernels::*f)(const float*, int64_t, float*) = name == "gelu"        ? &RowKernels::gelu
                                                          : name == "gelu_tanh" ? &RowKernels::gelu_tanh
                                                                                : nullptr;
  if (f == nullptr) throw std::invalid_argument("no operation of one value is called " + name);
  return each_row([=](const Frame& frame, int64_t r) {
    (frame.kernels.rows->*f)(frame.row(x, r), x.width, frame.row(y, r));
  });
}

std::unique_ptr<RowOp> binary_op(const std::string& name, Operand a, Operand b, Operand y) {
  void (*RowKernels::*f)(const float*, const float*, int64_t, float*) =
      name == "add"             ? &RowKernels::add
      : name == "silu_mul"      ? &RowKernels::silu_mul
      : name == "gelu_tanh_mul" ? &RowKernels::gelu_tanh_mul
                                : nullptr;
  if (f == nullptr) throw std::invalid_argument("no operation of two values is called " + name);
  return each_row([=](const Frame& frame, int64_t r) {
    (frame.kernels.rows->*f)(frame.row(a, r), frame.row(b, r), a.width, frame.row(y, r));
  });
}

std::unique_ptr<RowOp> scalar_op(const std::string& name, Operand x, float value, Operand y) {
  void (*RowKernels::*f)(const float*, float, int64_t, float*) = name == "scale"   ? &RowKernels::scale
                                                                 : name == "clamp" ? &RowKernels::clamp
                                                                 : name == "softcap"
                                                                     ? &RowKernels::softcap
                                                                     : nullptr;
  if (f == nullptr) throw std::invalid_argument("no operation with a number is called " + name);
  return each_row([=](const Frame& frame, int64_t r) {
    (frame.kernels.rows->*f)(frame.row(x, r), value, x.width, frame.row(y, r));
  });
}

}  // namespace pellucid
