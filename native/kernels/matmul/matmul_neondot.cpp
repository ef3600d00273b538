// Arm NEON with the dot-product extension: a register holds four neighbours along K of 4 outputs, and
// SDOT multiplies them with one 32-bit lane of 16 activations. The same bits as matmul_generic.cpp.
//
// Signed bytes hold every code less its zero point, so integer sums need no start of their own.
//
// This source must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be this one.
#include <arm_neon.h>

#include "kernels/matmul/kernels.h"

namespace pellucid::matmul {
namespace {

#define INLINE inline __attribute__((always_inline))

INLINE float32x4_t halves4(const uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

constexpr int zero_of(int bits, Params params) {
  return params == Params::d_m || params == Params::k_d_m ? 0 : 1 << (bits - 1);
}

// Code - zero of four outputs, step 4 * half + s of the block; `codes` is of the first of them.
template <int bits, int zero>
INLINE int8x16_t factors(const uint8_t* codes, int half, int s) {
  if constexpr (bits == 8)
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(codes + 256 * half + 64 * s), vdupq_n_u8(0x80)));
  const uint8x16_t v = vld1q_u8(codes + 64 * s);
  uint8x16_t code = half ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
  if constexpr (bits == 5) {
    const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(4 - (4 * half + s)));  // left
    code = vorrq_u8(code, vandq_u8(vshlq_u8(vld1q_u8(codes + 256), by), vdupq_n_u8(16)));
  }
  if constexpr (bits == 6) {
    const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(4 - 2 * s));
    code = vorrq_u8(code, vandq_u8(vshlq_u8(vld1q_u8(codes + 256 + 64 * half), by), vdupq_n_u8(48)));
  }
  return vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8(zero));
}

// value = d * (code - zero) - minus_m; d[1] is of the block's second half, for k_d.
struct Scales {
  float32x4_t d[2];
  float32x4_t minus_m;
};

INLINE float32x4_t four_floats(uint8x8_t bytes) {
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}
INLINE float32x4_t four_floats(int8x8_t bytes) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}
INLINE uint8x8_t four_bytes(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, 4);
  return vreinterpret_u8_u32(vdup_n_u32(four));
}

// Of outputs [first, first + 4) of the group.
template <Params params>
INLINE Scales scales(const uint8_t* p, int64_t block, int first) {
  Scales s = {};
  if constexpr (params == Params::d || params == Params::d_m) {
    p += block * (params == Params::d ? 32 : 64) + 2 * first;
    s.d[0] = halves4(p);
    if constexpr (params == Params::d_m) s.minus_m = vnegq_f32(halves4(p + 32));
  } else if constexpr (params == Params::k_d_m) {
    p += block / 8 * 320;
    const uint8_t* small = p + 64 + block % 8 * 32 + first;
    s.d[0] = vmulq_f32(halves4(p + 2 * first), four_floats(four_bytes(small)));
    s.minus_m = vmulq_f32(halves4(p + 32 + 2 * first), four_floats(four_bytes(small + 16)));
  } else {
    p += block / 8 * 288;
    const uint8_t* small = p + 32 + block % 8 * 32 + first;
    const float32x4_t d = halves4(p + 2 * first);
    for (int h = 0; h < 2; ++h)
      s.d[h] = vmulq_f32(d, four_floats(vreinterpret_s8_u8(four_bytes(small + 16 * h))));
  }
  return s;
}

INLINE void store(float32x4_t sum, int row, int first, const Sink& sink) {
  float* out = sink.out + row * sink.ldo + first;
  if (sink.lanes - first >= 4) {
    if (sink.bias) sum = vaddq_f32(sum, vld1q_f32(sink.bias + first));
    if (sink.add) sum = vaddq_f32(sum, vld1q_f32(out));
    vst1q_f32(out, sum);
    return;
  }
  float lanes[4];
  vst1q_f32(lanes, sum);
  for (int i = 0; i < sink.lanes - first; ++i) {
    const float biased = sink.bias ? lanes[i] + sink.bias[first + i] : lanes[i];
    out[i] = sink.add ? biased + out[i] : biased;
  }
}

// `parts` quarters of the group at once, from output `first` on.
template <int bits, Params params, int rows, int parts>
INLINE void block_sums(const BlockTile& tile, int first) {
  constexpr bool kHalves = params == Params::k_d;
  constexpr bool kMinimum = params == Params::d_m || params == Params::k_d_m;
  float32x4_t sum[rows][parts];
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < parts; ++p) sum[r][p] = vdupq_n_f32(0.0f);
  const uint8_t* codes = tile.codes + 4 * first;
  for (int64_t b = 0; b < tile.blocks; ++b, codes += 64 * bits) {
    const ActivationBlock* x = tile.x + b;
    int32x4_t n[2][rows][parts];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      int8x16_t w[4][parts];
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s)
#pragma GCC unroll 4
        for (int p = 0; p < parts; ++p)
          w[s][p] = factors<bits, zero_of(bits, params)>(codes + 16 * p, half, s);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const int8x16_t q = vld1q_s8(x[r * tile.blocks].q + 16 * half);
#pragma GCC unroll 4
        for (int p = 0; p < parts; ++p) {
          int32x4_t to = half && !kHalves ? n[0][r][p] : vdupq_n_s32(0);
          to = vdotq_laneq_s32(to, w[0][p], q, 0);
          to = vdotq_laneq_s32(to, w[1][p], q, 1);
          to = vdotq_laneq_s32(to, w[2][p], q, 2);
          n[kHalves ? half : 0][r][p] = vdotq_laneq_s32(to, w[3][p], q, 3);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) {
      const Scales scale = scales<params>(tile.params, b, first + 4 * p);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const ActivationBlock& block = x[r * tile.blocks];
        float32x4_t& to = sum[r][p];
        for (int half = 0; half < (kHalves ? 2 : 1); ++half) {
          const float32x4_t product = vmulq_f32(vcvtq_f32_s32(n[half][r][p]), scale.d[half]);
          to = vfmaq_n_f32(to, product, block.scale);
        }
        if constexpr (kMinimum)
          to = vfmsq_f32(to, scale.minus_m, vdupq_n_f32(block.scaled_sum));
      }
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int p = 0; p < parts; ++p) store(sum[r][p], r, first + 4 * p, tile.sink);
}

// 32 registers: eight integer and eight float sums, and eight of codes.
template <int bits, Params params, int rows>
__attribute__((noinline)) void block_tile(const BlockTile& tile) {
  constexpr int kParts = rows <= 4 ? 2 : 1;
  for (int first = 0; first < tile.sink.lanes; first += 4 * kParts)
    block_sums<bits, params, rows, kParts>(tile, first);
}

template <TensorType type>
INLINE float32x4_t weights4(const uint8_t* p) {
  if constexpr (type == TensorType::f32) return vreinterpretq_f32_u8(vld1q_u8(p));
  if constexpr (type == TensorType::f16) return halves4(p);
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

template <TensorType type, int rows>
__attribute__((noinline)) void float_tile(const FloatTile& tile) {
  constexpr int kBytes = type == TensorType::f32 ? 4 : 2;
  constexpr int kParts = 2;
  for (int first = 0; first < tile.sink.lanes; first += 4 * kParts) {
    float32x4_t sum[2][rows][kParts];
    for (int r = 0; r < rows; ++r)
      for (int p = 0; p < kParts; ++p) sum[0][r][p] = sum[1][r][p] = vdupq_n_f32(0.0f);
    const uint8_t* w = tile.weights + first * kBytes;
    const auto step = [&](int chain, int64_t k) __attribute__((always_inline)) {
      for (int p = 0; p < kParts; ++p) {
        const float32x4_t w4 = weights4<type>(w + 4 * p * kBytes);
        for (int r = 0; r < rows; ++r)
          sum[chain][r][p] = vfmaq_n_f32(sum[chain][r][p], w4, tile.x[r * tile.k + k]);
      }
      w += 16 * kBytes;
    };
    int64_t k = 0;
    for (; k + 2 <= tile.k; k += 2) {
      step(0, k);
      step(1, k + 1);
    }
    if (tile.k % 2) step(0, k);
    for (int r = 0; r < rows; ++r)
      for (int p = 0; p < kParts; ++p)
        store(vaddq_f32(sum[0][r][p], sum[1][r][p]), r, first + 4 * p, tile.sink);
  }
}

template <int bits, Params params, int... rows>
TypeKernels block_table(IntList<rows...>) {
  return {sizeof...(rows), {nullptr, block_tile<bits, params, rows>...}, {}};
}
template <TensorType type, int... rows>
TypeKernels float_table(IntList<rows...>) {
  return {sizeof...(rows), {}, {nullptr, float_tile<type, rows>...}};
}

TypeKernels kernels(TensorType type) {
  constexpr IntList<1, 2, 3, 4, 5, 6, 7, 8> heights;
  constexpr IntList<1, 2, 3, 4, 5, 6> low;  // two chains of two quarters: 24 of 32 registers
  switch (type) {
    case TensorType::f32: return float_table<TensorType::f32>(low);
    case TensorType::f16: return float_table<TensorType::f16>(low);
    case TensorType::bf16: return float_table<TensorType::bf16>(low);
    case TensorType::q4_0: return block_table<4, Params::d>(heights);
    case TensorType::q4_1: return block_table<4, Params::d_m>(heights);
    case TensorType::q5_0: return block_table<5, Params::d>(heights);
    case TensorType::q5_1: return block_table<5, Params::d_m>(heights);
    case TensorType::q8_0: return block_table<8, Params::d>(heights);
    case TensorType::q4_k: return block_table<4, Params::k_d_m>(heights);
    case TensorType::q5_k: return block_table<5, Params::k_d_m>(heights);
    case TensorType::q6_k: return block_table<6, Params::k_d>(heights);
  }
  return {};
}

INLINE void quantize_block(const float* x, ActivationBlock& block) {
  float32x4_t v[8];
  uint32x4_t largest_bits = vdupq_n_u32(0);  // bits of floats without sign order as they do
  for (int i = 0; i < 8; ++i) {
    v[i] = vld1q_f32(x + 4 * i);
    largest_bits = vmaxq_u32(largest_bits, vreinterpretq_u32_f32(vabsq_f32(v[i])));
  }
  const uint32_t bits = vmaxvq_u32(largest_bits);
  const bool finite = bits < 0x7f800000;
  const float largest = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(bits)), 0);
  const bool zero = !finite || largest < kSmallestActivation;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  int32_t sums[2];
  for (int half = 0; half < 2; ++half) {
    int32x4_t q[4];
    for (int i = 0; i < 4; ++i)
      q[i] = zero ? vdupq_n_s32(0) : vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], inverse));
    sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    vst1q_s8(block.q + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  block.scale = finite ? zero ? 0.0f : largest / 127.0f : __builtin_nanf("");
  block.scaled_sum = block.scale * static_cast<float>(sums[0] + sums[1]);
  block.start = kMagicBits - 128 * (sums[0] + sums[1]);
  block.start_half[0] = kMagicBits - 128 * sums[0];
  block.start_half[1] = kMagicBits - 128 * sums[1];
  block.unused[0] = block.unused[1] = block.unused[2] = 0;
}

void quantize_row_neon(const float* x, int64_t k, ActivationBlock* blocks) {
  for (int64_t b = 0; b < k / kBlock; ++b) quantize_block(x + b * kBlock, blocks[b]);
}

}  // namespace

const KernelSet kNeonKernels = {kernels, quantize_row_neon};

}  // namespace pellucid::matmul
