// Operations on one row at a time: norms, rotary positions, elementwise functions, and the moves
// between rows and the cache. n counts floats and may be anything; y may be x.
#pragma once

#include <cstdint>

#include "core/half.h"

namespace pellucid {

struct RowKernels {
  // y = x / sqrt(mean(x^2) + eps) * weight
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* y);
  // y = (x - mean) / sqrt(var + eps) * weight + bias; bias may be null
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n, float eps,
                     float* y);
  // One head, its first `dims` features turned. `half`: cos and sin hold dims / 2 values. Otherwise
  // neighbours are paired, and they hold dims: each cosine twice, each sine as -sin, sin.
  void (*rope)(const float* x, const float* cos, const float* sin, int64_t head_dim, int64_t dims,
               bool half, float* y);
  void (*gelu)(const float* x, int64_t n, float* y);
  void (*gelu_tanh)(const float* x, int64_t n, float* y);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* y);
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*scale)(const float* x, float factor, int64_t n, float* y);
  void (*clamp)(const float* x, float limit, int64_t n, float* y);
  void (*softcap)(const float* x, float cap, int64_t n, float* y);
  // y += factor * x, rounded once
  void (*add_scaled)(const float* x, float factor, int64_t n, float* y);
  // y = e^((x - largest) factor), and the sum of y
  float (*weights)(const float* x, float largest, float factor, int64_t n, float* y);
  // The largest of x; `numbers` tells whether none is NaN or +infinity.
  float (*largest)(const float* x, int64_t n, bool* numbers);
  // For each 256 of x, n a multiple of that, 16 peaks: the j-th is the largest of x[j], x[16 + j],
  // x[32 + j], ... of these 256.
  void (*peaks)(const float* x, int64_t n, float* peaks);
};

extern const RowKernels kRowKernelsGeneric;
#if defined(__x86_64__) || defined(_M_X64)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
#elif defined(__aarch64__)
extern const RowKernels kRowKernelsNeon;
#endif

}  // namespace pellucid
