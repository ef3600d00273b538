// Products of 16-bit integers as plain loops: the twin of all others.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/matmul/layout.h"
#include "kernels/matmul/wide.h"

namespace pellucid::matmul {
namespace {

struct Split {
  int32_t high, low;
};

Split split(float x, float inverse) {
  const auto value = static_cast<int32_t>(std::nearbyintf(x * inverse));
  const auto high = static_cast<int32_t>(std::nearbyintf(static_cast<float>(value) / kWideBase));
  return {high, value - kWideBase * high};
}

void quantize_chunk(const float* x, const WideShape& shape, int64_t chunk, uint8_t* row) {
  const int64_t begin = shape.chunk_begin(chunk), end = shape.chunk_begin(chunk + 1);
  float largest = 0.0f;
  bool finite = true;
  for (int64_t i = begin * kBlock; i < end * kBlock; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const bool zero = !finite || largest < kSmallestActivation;
  const float scale = finite ? zero ? 0.0f : largest / kWideLargest : NAN;
  std::memcpy(row + shape.row_scales() + chunk * 4, &scale, 4);
  const float inverse = zero ? 0.0f : kWideLargest / largest;
  for (int64_t b = begin; b < end; ++b) {
    auto* high = reinterpret_cast<int8_t*>(row + b / 2 * 128 + b % 2 * 32);
    Split sums = {0, 0};
    for (int64_t i = 0; i < kBlock; ++i) {
      const Split s = zero ? Split{0, 0} : split(x[b * kBlock + i], inverse);
      high[i] = static_cast<int8_t>(s.high);
      high[i + 64] = static_cast<int8_t>(s.low);
      sums.high += s.high;
      sums.low += s.low;
    }
    const WideBlock block = {-kWideZero * sums.high, -kWideZero * sums.low, sums.high * 65536,
                             sums.low * 65536};
    std::memcpy(row + shape.row_meta() + b * 16, &block, sizeof block);
  }
}

void quantize_row(const float* x, int64_t k, uint8_t* row) {
  const WideShape shape = {k / kBlock, false};
  if (shape.blocks % 2) std::memset(row + shape.row_meta() - 128, 0, 128);
  for (int64_t c = 0; c < shape.chunks(); ++c) quantize_chunk(x, shape, c, row);
}

int32_t code(const uint8_t* block, int lane, int i) {
  const uint8_t byte = block[i % 16 / 4 * 64 + lane * 4 + i % 4];
  return (i < 16 ? byte & 15 : byte >> 4) - kWideZero;
}

int16_t param(const uint8_t* p, int64_t i) {
  int16_t value;
  std::memcpy(&value, p + 2 * i, 2);
  return value;
}

// To the nearest multiple of 256, in units of it.
int32_t coarse(int32_t value) { return (value + 128) >> 8; }

// The sum of one chunk, row and output.
int32_t chunk_sum(const WideShape& shape, const uint8_t* group, const uint8_t* row, int64_t chunk,
                  int lane) {
  int32_t sum = 0;
  for (int64_t b = shape.chunk_begin(chunk); b < shape.chunk_begin(chunk + 1); ++b) {
    const uint8_t* p = group + shape.group_params() + b * shape.param_bytes();
    const int32_t d = param(p, shape.minima ? 2 * lane : lane);
    const int32_t m = shape.minima ? param(p, 2 * lane + 1) : 0;
    const auto* high = reinterpret_cast<const int8_t*>(row + b / 2 * 128 + b % 2 * 32);
    for (int i = 0; i < kBlock; ++i) {
      const int32_t q = code(group + shape.group_codes() + b * 256, lane, i);
      sum += (q * d + m) * high[i] + (q * coarse(d) + coarse(m)) * high[i + 64];
    }
  }
  return sum;
}

float number(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

void multiply(const WideProduct& p) {
  const WideShape& shape = p.shape;
  for (int64_t g = p.group_begin; g < p.group_end; ++g)
    for (int64_t o = g * kLanes; o < std::min((g + 1) * kLanes, p.n_out); ++o)
      for (int64_t r = 0; r < p.rows; ++r) {
        const uint8_t* group = p.groups + g * shape.group_bytes();
        const uint8_t* row = p.x + r * shape.row_bytes();
        const auto lane = static_cast<int>(o % kLanes);
        float sum = 0.0f;
        for (int64_t c = 0; c < shape.chunks(); ++c) {
          const auto n = static_cast<float>(chunk_sum(shape, group, row, c, lane));
          const float scaled = n * number(group + c * 64 + lane * 4);
          sum = std::fmaf(scaled, number(row + shape.row_scales() + c * 4), sum);
        }
        float& out = p.sink.out[r * p.sink.ldo + o];
        if (p.sink.bias) sum += p.sink.bias[o];
        out = p.sink.add ? sum + out : sum;
      }
}

}  // namespace

const WideKernels kWideGeneric = {quantize_row, multiply};

const WideKernels& wide_kernels(Simd simd) {
#if defined(__x86_64__)
  if (simd == Simd::amx) return kWideAmx;
  if (simd == Simd::avx512) return kWideAvx512;
#endif
  static_cast<void>(simd);
  return kWideGeneric;
}

}  // namespace pellucid::matmul
