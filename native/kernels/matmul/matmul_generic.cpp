// The readable twin: what every other instruction set must compute, bit for bit.
//
// For one row x and one output, blocks b in order:
//     sum += (d[b] * sum_i (code[i] - zero) q[i]) * scale[b]      integers inside, one fused add
//     sum += m[b] * scaled_sum[b]                                 for types with a minimum; fused
// For floats: the even and the odd k are summed apart, each in order with fused adds, then added.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {
namespace {

float half_at(const uint8_t* p, int64_t i) {
  uint16_t h;
  std::memcpy(&h, p + 2 * i, 2);
  return from_half(h);
}

// Code i of a lane in the block at `codes`; see layout.h.
int code_at(int bits, const uint8_t* codes, int lane, int i) {
  const int step = i / 4, byte = 4 * lane + i % 4;
  if (bits == 8) return codes[64 * step + byte];
  const int low = codes[64 * (step % 4) + byte] >> (i < 16 ? 0 : 4) & 15;
  if (bits == 5) return low | (codes[256 + byte] >> step & 1) << 4;
  if (bits == 6) return low | (codes[256 + 64 * (i / 16) + byte] >> 2 * (step % 4) & 3) << 4;
  return low;
}

// value = d * (code - zero) + m; d[0] for the first 16 values, d[1] for the others.
struct Scales {
  float d[2];
  float m;
};

Scales scales_at(const Layout& layout, const uint8_t* params, int64_t block, int lane) {
  if (!layout.is_super()) {
    const uint8_t* p = params + block * layout.param_bytes();
    const float d = half_at(p, lane);
    return {{d, d}, layout.params == Params::d_m ? half_at(p, kLanes + lane) : 0.0f};
  }
  const uint8_t* p = params + block / 8 * layout.param_bytes();
  const int64_t sub = block % 8;
  const float d = half_at(p, lane);
  if (layout.params == Params::k_d_m) {
    const uint8_t* small = p + 4 * kLanes + sub * 2 * kLanes;
    const float scaled = d * static_cast<float>(small[lane]);
    const float dmin = half_at(p, kLanes + lane);
    return {{scaled, scaled}, -(dmin * static_cast<float>(small[kLanes + lane]))};
  }
  const auto* small = reinterpret_cast<const int8_t*>(p + 2 * kLanes + sub * 2 * kLanes);
  return {{d * static_cast<float>(small[lane]), d * static_cast<float>(small[kLanes + lane])}, 0.0f};
}

void store(float sum, int row, int lane, const Sink& sink) {
  if (sink.bias) sum += sink.bias[lane];
  float& out = sink.out[row * sink.ldo + lane];
  out = sink.add ? sum + out : sum;
}

int32_t dot16(const int16_t* codes, const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += codes[i] * q[i];
  return sum;
}

template <TensorType type>
void block_tile(const BlockTile& tile) {
  const Layout& layout = *find_layout(type);
  const bool halves = layout.params == Params::k_d;
  const bool minimum = layout.params == Params::d_m || layout.params == Params::k_d_m;
  float sums[kMaxTileRows][kLanes] = {};
  for (int64_t b = 0; b < tile.blocks; ++b) {
    const uint8_t* codes = tile.codes + b * layout.code_bytes();
    for (int lane = 0; lane < tile.sink.lanes; ++lane) {
      int16_t centred[kBlock];
      for (int i = 0; i < kBlock; ++i)
        centred[i] = static_cast<int16_t>(code_at(layout.bits, codes, lane, i) - layout.zero);
      const Scales scales = scales_at(layout, tile.params, b, lane);
      for (int row = 0; row < tile.rows; ++row) {
        const ActivationBlock& x = tile.x[row * tile.blocks + b];
        float& sum = sums[row][lane];
        const int32_t dots[2] = {dot16(centred, x.q), dot16(centred + 16, x.q + 16)};
        if (halves) {
          sum = std::fma(static_cast<float>(dots[0]) * scales.d[0], x.scale, sum);
          sum = std::fma(static_cast<float>(dots[1]) * scales.d[1], x.scale, sum);
        } else {
          sum = std::fma(static_cast<float>(dots[0] + dots[1]) * scales.d[0], x.scale, sum);
        }
        if (minimum) sum = std::fma(scales.m, x.scaled_sum, sum);
      }
    }
  }
  for (int row = 0; row < tile.rows; ++row)
    for (int lane = 0; lane < tile.sink.lanes; ++lane) store(sums[row][lane], row, lane, tile.sink);
}

template <TensorType type>
float weight_at(const uint8_t* weights, int64_t i) {
  if constexpr (type == TensorType::f16) return half_at(weights, i);
  if constexpr (type == TensorType::bf16) {
    uint16_t b;
    std::memcpy(&b, weights + 2 * i, 2);
    return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
  }
  float w;
  std::memcpy(&w, weights + 4 * i, 4);
  return w;
}

template <TensorType type>
void float_tile(const FloatTile& tile) {
  float sums[kMaxTileRows][2][kLanes] = {};
  for (int64_t i = 0; i < tile.k; ++i)
    for (int lane = 0; lane < tile.sink.lanes; ++lane) {
      const float w = weight_at<type>(tile.weights, i * kLanes + lane);
      for (int row = 0; row < tile.rows; ++row) {
        float& sum = sums[row][i % 2][lane];
        sum = std::fma(w, tile.x[row * tile.k + i], sum);
      }
    }
  for (int row = 0; row < tile.rows; ++row)
    for (int lane = 0; lane < tile.sink.lanes; ++lane)
      store(sums[row][0][lane] + sums[row][1][lane], row, lane, tile.sink);
}

template <TensorType type>
TypeKernels block_kernels() {
  TypeKernels kernels{8, {}, {}};
  std::fill(kernels.block + 1, kernels.block + 9, block_tile<type>);
  return kernels;
}

template <TensorType type>
TypeKernels float_kernels() {
  TypeKernels kernels{8, {}, {}};
  std::fill(kernels.floats + 1, kernels.floats + 9, float_tile<type>);
  return kernels;
}

TypeKernels kernels(TensorType type) {
  switch (type) {
    case TensorType::f32: return float_kernels<TensorType::f32>();
    case TensorType::f16: return float_kernels<TensorType::f16>();
    case TensorType::bf16: return float_kernels<TensorType::bf16>();
    case TensorType::q4_0: return block_kernels<TensorType::q4_0>();
    case TensorType::q4_1: return block_kernels<TensorType::q4_1>();
    case TensorType::q5_0: return block_kernels<TensorType::q5_0>();
    case TensorType::q5_1: return block_kernels<TensorType::q5_1>();
    case TensorType::q8_0: return block_kernels<TensorType::q8_0>();
    case TensorType::q4_k: return block_kernels<TensorType::q4_k>();
    case TensorType::q5_k: return block_kernels<TensorType::q5_k>();
    case TensorType::q6_k: return block_kernels<TensorType::q6_k>();
  }
  return {};
}

void quantize_block(const float* x, ActivationBlock& block) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const bool zero = !finite || largest < kSmallestActivation;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < kBlock; ++i) {
    const float scaled = zero ? 0.0f : std::nearbyint(x[i] * inverse);
    block.q[i] = static_cast<int8_t>(scaled);
    sums[i / 16] += block.q[i];
  }
  const int32_t sum = sums[0] + sums[1];
  block.scale = finite ? (zero ? 0.0f : largest / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  block.scaled_sum = block.scale * static_cast<float>(sum);
  block.start = kMagicBits - 128 * sum;
  block.start_half[0] = kMagicBits - 128 * sums[0];
  block.start_half[1] = kMagicBits - 128 * sums[1];
  std::fill(block.unused, block.unused + 3, 0);
}

void quantize_row_generic(const float* x, int64_t k, ActivationBlock* blocks) {
  for (int64_t b = 0; b < k / kBlock; ++b) quantize_block(x + b * kBlock, blocks[b]);
}

}  // namespace

const KernelSet kGenericKernels = {kernels, quantize_row_generic};

}  // namespace pellucid::matmul
