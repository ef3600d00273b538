// Weights for products of bfloat16: scales and minima in half precision beside the codes of the file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/half.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/weight.h"
#include "kernels/matmul/bf16.h"

namespace pellucid {
namespace matmul {
namespace {

// D and M of one block and output, before any 2^e: a value is D (1 + code / 16) + M.
struct BlockScale {
  float d, m;
};

// Those of block b of a packed group.
BlockScale block_scale(const Layout& layout, const uint8_t* params, int64_t b, int lane) {
  const auto half = [](const uint8_t* p) {
    Half value;
    std::memcpy(&value, p, 2);
    return from_half(value);
  };
  params += b * layout.param_bytes() + 2 * lane;
  const float d = 16.0f * half(params);
  if (layout.params == Params::d) return {d, -1.5f * d};
  return {d, half(params + 2 * kLanes) - d};
}

class Bf16Weight final : public LoadedWeight {
 public:
  Bf16Weight(const Layout& layout, int64_t n_out_, int64_t k_, Simd simd_, WeightArena& arena)
      : layout_(layout),
        shape_{k_ / kBlock, layout.params != Params::d},
        multiply_(bf16_kernels(simd_).multiply) {
    n_out = n_out_;
    k = k_;
    type = layout.type;
    activations = ActivationKind::bf16;
    simd = simd_;
    group = kLanes;
    data_ = arena.allocate(bytes());
  }

  void pack(const uint8_t* raw, int64_t begin, int64_t end) override {
    std::vector<uint8_t> packed(static_cast<size_t>(layout_.group_bytes(k)));
    for (int64_t g = begin; g < end; ++g) {
      pack_group(layout_, raw, n_out, k, g, packed.data());
      uint8_t* to = data_.get() + g * shape_.group_bytes();
      place_params(packed.data(), to);
      std::memcpy(to + shape_.group_codes(), packed.data() + layout_.params_bytes(k),
                  static_cast<size_t>(shape_.blocks * 256));
    }
  }

  size_t bytes() const override { return static_cast<size_t>(n_groups() * shape_.group_bytes()); }

  void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                int64_t group_begin, int64_t group_end) const override {
    check(x, ldo, group_begin, group_end);
    if (x.rows == 0) return;
    multiply_({shape_, data_.get(), group_begin, group_end, n_out, x.bf16, x.rows, {out, ldo, bias, add, 0}});
  }

 private:
  // An output's factor 2^(48 - e), and its blocks' D and M.
  void place_params(const uint8_t* packed, uint8_t* to) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      float largest = 0.0f;
      bool finite = true;
      for (int64_t b = 0; b < shape_.blocks; ++b) {
        const BlockScale s = block_scale(layout_, packed, b, lane);
        finite = finite && std::isfinite(s.d) && std::isfinite(s.m);
        largest = std::max({largest, std::fabs(s.d), std::fabs(s.m)});
      }
      const int e = finite && largest > 0.0f ? exponent_of(largest) : 0;
      const float factor = finite ? std::ldexp(1.0f, kBf16Exponent - e) : NAN;
      std::memcpy(to + 4 * lane, &factor, 4);
      for (int64_t b = 0; b < shape_.blocks; ++b) {
        const BlockScale s = finite ? block_scale(layout_, packed, b, lane) : BlockScale{0.0f, 0.0f};
        place_block({std::ldexp(s.d, e), std::ldexp(s.m, e)}, b, lane, to);
      }
    }
  }

  // The most that leaves `largest` times 2^e within bounds.
  static int exponent_of(float largest) {
    int e;
    std::frexp(kBf16Largest / largest, &e);
    return e - 1;
  }

  void place_block(const BlockScale& s, int64_t b, int lane, uint8_t* to) const {
    uint8_t* at = to + shape_.group_params() + b * shape_.param_bytes();
    const Half d = to_half(s.d), m = to_half(s.m);
    std::memcpy(at + (shape_.minima ? 4 : 2) * lane, &d, 2);
    if (shape_.minima) std::memcpy(at + 4 * lane + 2, &m, 2);
  }

  Layout layout_;
  Bf16Shape shape_;
  void (*multiply_)(const Bf16Product&);
  std::shared_ptr<uint8_t> data_;
};

}  // namespace

bool can_be_bf16(TensorType type) { return type == TensorType::q4_0 || type == TensorType::q4_1; }

std::unique_ptr<LoadedWeight> bf16_weight(const Layout& layout, const RawWeight& from, Simd simd,
                                          WeightArena& arena) {
  return std::make_unique<Bf16Weight>(layout, from.n_out, from.k, simd, arena);
}

}  // namespace matmul

bool prefers_bf16(TensorType type, Simd simd) { return simd == Simd::amx && matmul::can_be_bf16(type); }

int64_t bf16_row_bytes(int64_t k) { return matmul::Bf16Shape{k / kBlock, false}.row_bytes(); }

void round_row_bf16(const float* x, int64_t k, uint8_t* row, Simd simd) {
  matmul::bf16_kernels(simd).round_row(x, k, row);
}

}  // namespace pellucid
