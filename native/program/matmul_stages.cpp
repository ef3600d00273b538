#include "program/matmul_stages.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace pellucid {
namespace {

// A thread's chunk streams at least this much of a weight, so that the processor's prefetchers run.
constexpr int64_t kChunkBytes = 16 * 1024;
// Chunks a thread: enough that a thread which the system took away holds little up.
constexpr int64_t kChunksEach = 4;
// Rows whose two factors stay in the nearest cache while they are combined; of bfloat16 in the second,
// as opening the weights for each strip of rows costs as much as multiplying two dozen of them.
constexpr int64_t kGatedRows = 64, kBf16GatedRows = 512;
// Bytes of the input that stay in the second-level cache while every unit reads them.
constexpr int64_t kStripBytes = 512 * 1024;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Activations ProductInput::rows(const Frame& frame, int64_t begin, int64_t end) const {
  Activations x;
  x.rows = end - begin;
  x.k = k();
  switch (kind) {
    case ActivationKind::int8: x.blocks = frame.row(blocks, begin); break;
    case ActivationKind::bf16: x.bf16 = frame.bf16_row(blocks, begin); break;
    case ActivationKind::f32: x.f32 = frame.row(floats, begin); break;
  }
  return x;
}

namespace {

// Groups [from, to) of one product; a second pass finds the weights in the nearest cache.
void multiply(const Frame& frame, const Product& product, const Activations& x, int64_t from,
              int64_t to) {
  float* y = frame.row(product.y, 0);
  const float* bias = product.bias.empty() ? nullptr : product.bias.data();
  product.weight->multiply(x, bias, y, product.y.stride, product.add, from, to);
  if (product.rest.slot < 0) return;
  Activations rest = x;
  rest.blocks = frame.row(product.rest, 0);
  product.weight->multiply(rest, nullptr, y, product.y.stride, true, from, to);
}

}  // namespace

void ProductStage::add(Product product) {
  n_groups_ += product.weight->n_groups();
  products_.push_back(std::move(product));
}

void ProductStage::prepare(const Frame&, int threads) {
  int64_t bytes = 0;
  for (const auto& product : products_) bytes += static_cast<int64_t>(product.weight->bytes());
  const int64_t least = divide_up(kChunkBytes, std::max<int64_t>(bytes / n_groups_, 1));
  chunk_ = std::max(divide_up(n_groups_, threads * kChunksEach),
                    std::min(least, divide_up(n_groups_, threads)));
  if (x_.kind == ActivationKind::bf16) chunk_ += chunk_ % 2;  // its kernels take groups in pairs
}

void ProductStage::groups(const Frame& frame, int64_t begin, int64_t end) const {
  const Activations x = x_.rows(frame, 0, frame.rows(kind_));
  int64_t first = 0;
  for (const auto& product : products_) {
    const int64_t n = product.weight->n_groups();
    const int64_t from = std::max<int64_t>(begin - first, 0), to = std::min(end - first, n);
    if (from < to) multiply(frame, product, x, from, to);
    first += n;
  }
}

template <class Begin>
void ProductStage::run_with(const Frame& frame, Worker& worker, Begin begin) const {
  if (frame.rows(kind_) == 0) return;
  worker.for_each(divide_up(n_groups_, chunk_), begin, [&](int64_t i) {
    groups(frame, i * chunk_, std::min((i + 1) * chunk_, n_groups_));
  });
}

void ProductStage::run(const Frame& frame, Worker& worker) const { run_with(frame, worker, [] {}); }

void ProductStage::run_after(const OwnRows& before, Worker& worker) const {
  run_with(before.frame(), worker, [&] { before.compute(); });
}

GatedStage::GatedStage(RowKind kind, ProductInput x, Product gate, Product up, const std::string& act,
                       Output y)
    : kind_(kind),
      x_(x),
      gate_(std::move(gate)),
      up_(std::move(up)),
      act_(act == "silu_mul" ? &RowKernels::silu_mul : &RowKernels::gelu_tanh_mul),
      y_(y),
      strip_rows_(x.kind == ActivationKind::bf16 ? kBf16GatedRows : kGatedRows),
      columns_(std::lcm(gate_.weight->group, kBlock)),
      n_units_(divide_up(gate_.weight->n_out, columns_)) {
  if (act != "silu_mul" && act != "gelu_tanh_mul")
    throw std::invalid_argument("no gate is called " + act);
}

size_t GatedStage::scratch_bytes() const {
  return static_cast<size_t>(2 * columns_ * strip_rows_) * sizeof(float);
}

void GatedStage::prepare(const Frame& frame, int threads) {
  const bool floats = x_.kind == ActivationKind::f32;
  const int64_t row_bytes = floats ? x_.floats.width * 4 : x_.blocks.row_bytes();
  row_chunk_ = std::max<int64_t>(kStripBytes / row_bytes / strip_rows_, 1) * strip_rows_;
  const int64_t row_chunks = divide_up(frame.rows(kind_), row_chunk_);
  unit_chunk_ = std::clamp<int64_t>(n_units_ * row_chunks / (threads * kChunksEach), 1, n_units_);
}

void GatedStage::unit(const Frame& frame, int64_t row_begin, int64_t row_end, int64_t unit,
                      float* space) const {
  const int64_t groups = columns_ / gate_.weight->group;
  const int64_t first = unit * groups, last = std::min(first + groups, gate_.weight->n_groups());
  const int64_t column = unit * columns_;
  const int64_t count = std::min(columns_, gate_.weight->n_out - column);
  const Activations x = x_.rows(frame, row_begin, row_end);
  float *gate = space, *up = space + columns_;
  const auto bias = [](const Product& p) { return p.bias.empty() ? nullptr : p.bias.data(); };
  // `multiply` places output o at out + o; ours starts with this unit's first.
  gate_.weight->multiply(x, bias(gate_), gate - column, 2 * columns_, false, first, last);
  up_.weight->multiply(x, bias(up_), up - column, 2 * columns_, false, first, last);
  for (int64_t r = row_begin; r < row_end; ++r, gate += 2 * columns_, up += 2 * columns_) {
    if (y_.is_quantized) {
      (frame.kernels.rows->*act_)(gate, up, count, gate);
      quantize_columns(frame, gate, count, y_.blocks, r, column);
    } else {
      (frame.kernels.rows->*act_)(gate, up, count, frame.row(y_.floats, r) + column);
    }
  }
}

template <class Begin>
void GatedStage::run_with(const Frame& frame, Worker& worker, Begin prologue) const {
  const int64_t rows = frame.rows(kind_);
  if (rows == 0) return;
  const int64_t row_chunks = divide_up(rows, row_chunk_), unit_chunks = divide_up(n_units_, unit_chunk_);
  auto* space = reinterpret_cast<float*>(frame.scratch[worker.index()]);
  worker.for_each(row_chunks * unit_chunks, prologue, [&](int64_t i) {
    const int64_t begin = i / unit_chunks * row_chunk_, end = std::min(begin + row_chunk_, rows);
    const int64_t first = i % unit_chunks * unit_chunk_;
    // A unit's weights stay in the nearest cache for all rows.
    for (int64_t u = first; u < std::min(first + unit_chunk_, n_units_); ++u)
      for (int64_t r = begin; r < end; r += strip_rows_)
        unit(frame, r, std::min(r + strip_rows_, end), u, space);
  });
}

void GatedStage::run(const Frame& frame, Worker& worker) const { run_with(frame, worker, [] {}); }

void GatedStage::run_after(const OwnRows& before, Worker& worker) const {
  run_with(before.frame(), worker, [&] { before.compute(); });
}

}  // namespace pellucid
