// Weights for activations of 16 bits: scales and minima as whole numbers beside the codes of the file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/half.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/weight.h"
#include "kernels/matmul/wide.h"

namespace pellucid {
namespace matmul {
namespace {

// d and m of one block and output: a value is d (code - 8) + m.
struct BlockScale {
  float d, m;
};

// The scales of block b of a packed group, whose codes stand for code - layout.zero.
BlockScale block_scale(const Layout& layout, const uint8_t* params, int64_t b, int lane) {
  const auto half = [](const uint8_t* p) {
    Half value;
    std::memcpy(&value, p, 2);
    return from_half(value);
  };
  params += b * layout.param_bytes() + 2 * lane;
  const float d = half(params);
  if (layout.params == Params::d) return {d, 0.0f};
  return {d, half(params + 2 * kLanes) + kWideZero * d};
}

int16_t whole(float x) { return static_cast<int16_t>(std::nearbyintf(x)); }

class WideWeight final : public LoadedWeight {
 public:
  WideWeight(const Layout& layout, int64_t n_out_, int64_t k_, Simd simd_, WeightArena& arena)
      : layout_(layout),
        shape_{k_ / kBlock, layout.params != Params::d},
        multiply_(wide_kernels(simd_).multiply) {
    n_out = n_out_;
    k = k_;
    type = layout.type;
    activations = ActivationKind::int16;
    simd = simd_;
    group = kLanes;
    data_ = arena.allocate(bytes());
  }

  void pack(const uint8_t* raw, int64_t begin, int64_t end) override {
    std::vector<uint8_t> packed(static_cast<size_t>(layout_.group_bytes(k)));
    for (int64_t g = begin; g < end; ++g) {
      pack_group(layout_, raw, n_out, k, g, packed.data());
      uint8_t* to = data_.get() + g * shape_.group_bytes();
      for (int64_t c = 0; c < shape_.chunks(); ++c) place_scales(packed.data(), c, to);
      std::memcpy(to + shape_.group_codes(), packed.data() + layout_.params_bytes(k),
                  static_cast<size_t>(shape_.blocks * 256));
    }
  }

  size_t bytes() const override { return static_cast<size_t>(n_groups() * shape_.group_bytes()); }

  void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                int64_t group_begin, int64_t group_end) const override {
    check(x, ldo, group_begin, group_end);
    if (x.rows == 0) return;
    multiply_({shape_, data_.get(), group_begin, group_end, n_out, x.wide, x.rows, {out, ldo, bias, add, 0}});
  }

 private:
  // A chunk's scale of each output, by which the largest weight that codes could stand for is 31300,
  // and its blocks' d and m in units of it.
  void place_scales(const uint8_t* packed, int64_t chunk, uint8_t* to) const {
    const int64_t begin = shape_.chunk_begin(chunk), end = shape_.chunk_begin(chunk + 1);
    for (int lane = 0; lane < kLanes; ++lane) {
      float largest = 0.0f;
      bool finite = true;
      for (int64_t b = begin; b < end; ++b) {
        const BlockScale s = block_scale(layout_, packed, b, lane);
        finite = finite && std::isfinite(s.d) && std::isfinite(s.m);
        largest = std::max({largest, std::fabs(s.m - 8.0f * s.d), std::fabs(s.m + 7.0f * s.d)});
      }
      const float scale = finite ? largest / kWideWeightLargest * kWideBase : NAN;
      const float inverse = finite && largest > 0.0f ? kWideWeightLargest / largest : 0.0f;
      std::memcpy(to + (chunk * kLanes + lane) * 4, &scale, 4);
      for (int64_t b = begin; b < end; ++b) {
        const BlockScale s = inverse > 0.0f ? block_scale(layout_, packed, b, lane) : BlockScale{0.0f, 0.0f};
        place_block({s.d * inverse, s.m * inverse}, b, lane, to);
      }
    }
  }

  void place_block(const BlockScale& s, int64_t b, int lane, uint8_t* to) const {
    uint8_t* at = to + shape_.group_params() + b * shape_.param_bytes();
    const int16_t d = whole(s.d), m = whole(s.m);
    std::memcpy(at + (shape_.minima ? 4 : 2) * lane, &d, 2);
    if (shape_.minima) std::memcpy(at + 4 * lane + 2, &m, 2);
  }

  Layout layout_;
  WideShape shape_;
  void (*multiply_)(const WideProduct&);
  std::shared_ptr<uint8_t> data_;
};

}  // namespace

bool can_be_wide(TensorType type) { return type == TensorType::q4_0 || type == TensorType::q4_1; }

std::unique_ptr<LoadedWeight> wide_weight(const Layout& layout, const RawWeight& from, Simd simd,
                                          WeightArena& arena) {
  return std::make_unique<WideWeight>(layout, from.n_out, from.k, simd, arena);
}

}  // namespace matmul

bool prefers_wide(TensorType type, Simd simd) { return simd == Simd::amx && matmul::can_be_wide(type); }

int64_t wide_row_bytes(int64_t k) { return matmul::WideShape{k / kBlock, false}.row_bytes(); }

void quantize_row_wide(const float* x, int64_t k, uint8_t* row, Simd simd) {
  matmul::wide_kernels(simd).quantize_row(x, k, row);
}

}  // namespace pellucid
