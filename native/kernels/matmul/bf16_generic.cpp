// Products of bfloat16 as plain loops: the twin of the tiles.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/bf16.h"
#include "core/half.h"
#include "kernels/matmul/bf16.h"
#include "kernels/matmul/layout.h"

namespace pellucid::matmul {
namespace {

void round_row(const float* x, int64_t k, uint8_t* row) {
  for (int64_t b = 0; b < k / kBlock; ++b, x += kBlock)
    for (int place = 0; place < kBlock; ++place) {
      const float value = x[bf16_value(place)];
      const uint16_t rounded = to_bf16(std::fmaf(value, kBf16Activations, value - value));
      std::memcpy(row + b * 64 + place * 2, &rounded, 2);
    }
}

Half half_at(const uint8_t* p) {
  Half value;
  std::memcpy(&value, p, 2);
  return value;
}

// An exact number to half precision, rounding once.
Half half_of(double x) {
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 1, -14) - 10);
  return to_half(static_cast<float>(std::nearbyint(x / unit) * unit));
}

// The weights of a block of one output, as bits of bfloat16, in the order of activations.
void open_block(const Bf16Shape& shape, const uint8_t* group, int64_t block, int lane, uint16_t* to) {
  const uint8_t* params = group + shape.group_params() + block * shape.param_bytes();
  const uint8_t* codes = group + shape.group_codes() + block * 256;
  const double d = from_half(half_at(params + (shape.minima ? 4 : 2) * lane));
  const double m = from_half(shape.minima ? half_at(params + 4 * lane + 2) : half_of(-1.5 * d));
  for (int place = 0; place < kBlock; ++place) {
    const int i = bf16_value(place);
    const uint8_t byte = codes[i % 16 / 4 * 64 + lane * 4 + i % 4];
    const int code = i < 16 ? byte & 15 : byte >> 4;
    const Half weight = half_of(d * (1.0 + code / 16.0) + m);
    to[place] = static_cast<uint16_t>((weight & 0x8000u) | (((weight & 0x7fffu) + 4) >> 3));
  }
}

void multiply(const Bf16Product& p) {
  const Bf16Shape& shape = p.shape;
  uint16_t weights[kBlock];
  for (int64_t o = p.group_begin * kLanes; o < std::min(p.group_end * kLanes, p.n_out); ++o) {
    const uint8_t* group = p.groups + o / kLanes * shape.group_bytes();
    const auto lane = static_cast<int>(o % kLanes);
    float factor;
    std::memcpy(&factor, group + 4 * lane, 4);
    for (int64_t r = 0; r < p.rows; ++r) {
      const uint8_t* row = p.x + r * shape.row_bytes();
      float sum = 0.0f;
      for (int64_t b = 0; b < shape.blocks; ++b) {
        open_block(shape, group, b, lane, weights);
        uint16_t values[kBlock];
        std::memcpy(values, row + b * 64, sizeof values);
        sum = add_bf16_products(values, weights, sum);
      }
      float& out = p.sink.out[r * p.sink.ldo + o];
      sum *= factor;
      if (p.sink.bias) sum += p.sink.bias[o];
      out = p.sink.add ? sum + out : sum;
    }
  }
}

}  // namespace

const Bf16Kernels kBf16Generic = {round_row, multiply};

const Bf16Kernels& bf16_kernels(Simd simd) {
#if defined(__x86_64__)
  if (simd == Simd::amx) return kBf16Amx;
#endif
  static_cast<void>(simd);
  return kBf16Generic;
}

}  // namespace pellucid::matmul
