// The kernels of rows.h over F32x16; rows_<isa>.cpp compiles them for one instruction set.
#pragma once

#include "kernels/rows/rows.h"
#include "simd/f32x16.h"

namespace pellucid::PELLUCID_ISA {

// f(i, count) for each run of up to 16 of n.
template <class F>
PELLUCID_INLINE void by_sixteen(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, static_cast<int>(n - i));
}

PELLUCID_INLINE F32x16 load_run(const float* p, int count) {
  return count == 16 ? load(p) : load(p, count);
}
PELLUCID_INLINE void store_run(float* p, F32x16 x, int count) {
  if (count == 16)
    store(p, x);
  else
    store(p, x, count);
}

template <class F>
PELLUCID_INLINE void map(const float* x, int64_t n, float* y, F&& f) {
  by_sixteen(n, [&](int64_t i, int count) { store_run(y + i, f(load_run(x + i, count)), count); });
}
template <class F>
PELLUCID_INLINE void map(const float* a, const float* b, int64_t n, float* y, F&& f) {
  by_sixteen(n, [&](int64_t i, int count) {
    store_run(y + i, f(load_run(a + i, count), load_run(b + i, count)), count);
  });
}

// Sum of f(i, count) over the runs: four running sums hide the latency of the additions.
template <class F>
PELLUCID_INLINE float sum_of(int64_t n, F&& f) {
  F32x16 part[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int j = 0; j < 4; ++j) part[j] = f(part[j], i + 16 * j, 16);
  by_sixteen(n - i, [&](int64_t j, int count) { part[0] = f(part[0], i + j, count); });
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* y) {
  const float squares = sum_of(n, [&](F32x16 s, int64_t i, int count) {
    const F32x16 v = load_run(x + i, count);
    return fma(v, v, s);
  });
  const F32x16 factor = splat(1.0f / square_root(squares / static_cast<float>(n) + eps));
  map(x, weight, n, y, [&](F32x16 v, F32x16 w) { return v * factor * w; });
}

void layer_norm(const float* x, const float* weight, const float* bias, int64_t n, float eps,
                float* y) {
  const float count_all = static_cast<float>(n);
  const float mean =
      sum_of(n, [&](F32x16 s, int64_t i, int count) { return s + load_run(x + i, count); }) /
      count_all;
  const float squares = sum_of(n, [&](F32x16 s, int64_t i, int count) {
    const F32x16 centred = load_run(x + i, count) - splat(mean);
    return fma(centred, count == 16 ? centred : select(lanes(0, count), centred, zero()), s);
  });
  const F32x16 factor = splat(1.0f / square_root(squares / count_all + eps));
  map(x, weight, n, y, [&](F32x16 v, F32x16 w) { return (v - splat(mean)) * factor * w; });
  if (bias != nullptr) map(y, bias, n, y, [](F32x16 v, F32x16 b) { return v + b; });
}

void rope(const float* x, const float* cos, const float* sin, int64_t head_dim, int64_t dims,
          bool half, float* y) {
  if (half) {
    const int64_t middle = dims / 2;
    by_sixteen(middle, [&](int64_t i, int count) {
      const F32x16 a = load_run(x + i, count), b = load_run(x + middle + i, count);
      const F32x16 c = load_run(cos + i, count), s = load_run(sin + i, count);
      store_run(y + i, a * c - b * s, count);
      store_run(y + middle + i, b * c + a * s, count);
    });
  } else {
    by_sixteen(dims, [&](int64_t i, int count) {
      const F32x16 v = load_run(x + i, count);
      const F32x16 turned = swap_pairs(v) * load_run(sin + i, count);
      store_run(y + i, v * load_run(cos + i, count) + turned, count);
    });
  }
  map(x + dims, head_dim - dims, y + dims, [](F32x16 v) { return v; });
}

void gelu_row(const float* x, int64_t n, float* y) {
  map(x, n, y, [](F32x16 v) { return gelu(v); });
}
void gelu_tanh_row(const float* x, int64_t n, float* y) {
  map(x, n, y, [](F32x16 v) { return gelu_tanh(v); });
}
void silu_mul(const float* gate, const float* up, int64_t n, float* y) {
  map(gate, up, n, y, [](F32x16 g, F32x16 u) { return silu(g) * u; });
}
void gelu_tanh_mul(const float* gate, const float* up, int64_t n, float* y) {
  map(gate, up, n, y, [](F32x16 g, F32x16 u) { return gelu_tanh(g) * u; });
}
void add(const float* a, const float* b, int64_t n, float* y) {
  map(a, b, n, y, [](F32x16 v, F32x16 w) { return v + w; });
}
void scale(const float* x, float factor, int64_t n, float* y) {
  map(x, n, y, [&](F32x16 v) { return v * splat(factor); });
}
void clamp(const float* x, float limit, int64_t n, float* y) {
  map(x, n, y, [&](F32x16 v) { return max(splat(-limit), min(splat(limit), v)); });
}
void softcap(const float* x, float cap, int64_t n, float* y) {
  map(x, n, y, [&](F32x16 v) { return splat(cap) * tanh(v / splat(cap)); });
}
void add_scaled(const float* x, float factor, int64_t n, float* y) {
  map(x, y, n, y, [&](F32x16 v, F32x16 w) { return fma(splat(factor), v, w); });
}

float weights(const float* x, float largest, float factor, int64_t n, float* y) {
  map(x, n, y, [&](F32x16 v) { return exp((v - splat(largest)) * splat(factor)); });
  return sum_of(n, [&](F32x16 s, int64_t i, int count) { return s + load_run(y + i, count); });
}

float largest(const float* x, int64_t n, bool* numbers) {
  const F32x16 end = splat(__builtin_inff());
  F32x16 most = zero() - end, strange = zero();
  by_sixteen(n, [&](int64_t i, int count) {
    const F32x16 v = count == 16 ? load(x + i) : select(lanes(0, count), load(x + i, count), zero() - end);
    most = max(v, most);
    strange = select(less(v, end), strange, splat(1.0f));
  });
  *numbers = sum(strange) == 0.0f;
  return max_lane(most);
}

void peaks(const float* x, int64_t n, float* peaks) {
  for (; n > 0; n -= 256, x += 256, peaks += 16) {
    F32x16 most = load(x);
    for (int j = 16; j < 256; j += 16) most = max(most, load(x + j));
    store(peaks, most);
  }
}

constexpr RowKernels kRowKernels = {
    rms_norm, layer_norm, rope,    gelu_row,   gelu_tanh_row, silu_mul, gelu_tanh_mul, add,
    scale,    clamp,      softcap, add_scaled, weights,       largest,  peaks,
};

}  // namespace pellucid::PELLUCID_ISA
