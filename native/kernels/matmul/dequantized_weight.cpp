// Quantised weights times activations in f32: a piece of a group is made floats, in the nearest cache,
// and the float kernels multiply it with many rows.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/matmul/dequantize.h"
#include "kernels/matmul/kernels.h"
#include "kernels/matmul/pack.h"

namespace pellucid {
namespace matmul {
namespace {

// Of K at a time: 16 KiB of floats for 16 outputs, and whole super-blocks. A sum goes through its
// pieces in order, whatever the rows.
constexpr int64_t kPieceK = 256;
// Rows that share the dequantisation of a piece; theirs of K lie side by side meanwhile.
constexpr int64_t kPieceRows = 32;

DequantizeGroup dequantizer(Simd simd) {
  switch (simd) {
#if defined(__x86_64__)
    case Simd::avx2: return kDequantizeAvx2;
    case Simd::avx512:
    case Simd::amx: return kDequantizeAvx512;
#elif defined(__aarch64__)
    case Simd::neon: return kDequantizeNeon;
#endif
    default: return kDequantizeGeneric;
  }
}

class DequantizedWeight final : public PackedWeight {
 public:
  DequantizedWeight(const Layout& layout, int64_t n_out_, int64_t k_, Simd simd_, WeightArena& arena)
      : layout_(layout),
        kernels_(kernel_set(simd_).kernels(TensorType::f32)),
        dequantize_(dequantizer(simd_)) {
    n_out = n_out_;
    k = k_;
    type = layout.type;
    activations = ActivationKind::f32;
    simd = simd_;
    group = kLanes;
    group_bytes_ = layout.group_bytes(k);
    data_ = arena.allocate(bytes());
  }

  void pack(const uint8_t* raw, int64_t g) {
    pack_group(layout_, raw, n_out, k, g, data_.get() + g * group_bytes_);
  }

  size_t bytes() const override { return static_cast<size_t>(n_groups() * group_bytes_); }

  void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                int64_t group_begin, int64_t group_end) const override {
    if (x.k != k || x.f32 == nullptr)
      throw std::invalid_argument("activations have k = " + std::to_string(x.k) +
                                  ", or no f32 rows; the weight k = " + std::to_string(k));
    if (group_begin < 0 || group_begin > group_end || group_end > n_groups())
      throw std::invalid_argument("groups [" + std::to_string(group_begin) + ", " +
                                  std::to_string(group_end) + ") are not within the weight's " +
                                  std::to_string(n_groups()));
    for (int64_t row = 0; row < x.rows; row += kPieceRows)
      for (int64_t from = 0; from < k; from += kPieceK)
        multiply_piece(x, row, std::min(kPieceRows, x.rows - row), from, bias, out, ldo, add, group_begin,
                       group_end);
  }

 private:
  void multiply_piece(const Activations& x, int64_t row, int64_t rows, int64_t from, const float* bias,
                      float* out, int64_t ldo, bool add, int64_t group_begin, int64_t group_end) const {
    alignas(64) float weights[kPieceK * kLanes];
    alignas(64) float part[kPieceRows * kPieceK];
    const int64_t count = std::min(kPieceK, k - from);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(part + r * count, x.f32 + (row + r) * k + from, sizeof(float) * count);
    const bool first = from == 0;
    for (int64_t g = group_begin; g < group_end; ++g) {
      dequantize_(layout_, data_.get() + g * group_bytes_, k, from / kBlock, (from + count) / kBlock, weights);
      const int64_t o = g * kLanes;
      const int lanes = static_cast<int>(std::min(kLanes, n_out - o));
      for (int64_t r = 0; r < rows;) {
        const int height = static_cast<int>(std::min<int64_t>(kernels_.max_rows, rows - r));
        const Sink sink{out + (row + r) * ldo + o, ldo, bias && first ? bias + o : nullptr, add || !first, lanes};
        kernels_.floats[height](
            {reinterpret_cast<const uint8_t*>(weights), count, part + r * count, height, sink});
        r += height;
      }
    }
  }

  Layout layout_;
  TypeKernels kernels_;
  DequantizeGroup dequantize_;
  int64_t group_bytes_ = 0;
  std::shared_ptr<uint8_t> data_;
};

}  // namespace
}  // namespace matmul

std::vector<std::unique_ptr<PackedWeight>> pack_for_floats(const std::vector<RawWeight>& weights, Simd simd,
                                                           WeightArena& arena, Pool& pool) {
  std::vector<std::unique_ptr<PackedWeight>> packed;
  for (const RawWeight& from : weights) {
    const matmul::Layout* layout = matmul::find_layout(from.type);
    if (layout == nullptr || layout->is_float()) {
      auto plain = pack_weights({from}, simd, arena, pool);
      packed.push_back(std::move(plain.front()));
      continue;
    }
    if (from.n_out <= 0 || from.k <= 0 || from.k % layout->raw_elements ||
        from.n_out > INT64_MAX / 64 / from.k)
      throw std::invalid_argument("weight has n_out = " + std::to_string(from.n_out) + ", k = " +
                                  std::to_string(from.k) + ", whose blocks are of " +
                                  std::to_string(layout->raw_elements));
    auto weight = std::make_unique<matmul::DequantizedWeight>(*layout, from.n_out, from.k, simd, arena);
    pool.run([&](Worker& worker) {
      worker.for_each(weight->n_groups(), [&](int64_t g) { weight->pack(from.raw, g); });
    });
    packed.push_back(std::move(weight));
  }
  return packed;
}

}  // namespace pellucid
