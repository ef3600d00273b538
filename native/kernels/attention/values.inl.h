// Weighted sums of a key block's values, one chain of fused multiply-adds over the keys.
//
// Values in blocks are turned (rotate.inl.h), and so are their sums. A value's scale is multiplied
// into its weight, its zero into what the chain starts from.
#pragma once

#include "kernels/attention/scores.inl.h"

namespace pellucid::PELLUCID_ISA {

// Codes of ND registers of features, from `column` on, of the key whose codes begin at `row`.
template <KvType kType, int ND>
PELLUCID_INLINE void load_values(const std::byte* row, int64_t column, F32x16 (&value)[ND]) {
  if constexpr (kType == KvType::int4) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(row) + column / 2;
    for (int n = 0; n < ND; n += 2) {
      value[n] = load_nibbles<0>(bytes + 8 * n);
      value[n + 1] = load_nibbles<4>(bytes + 8 * n);
    }
  } else {
    using T = std::conditional_t<kType == KvType::f32, float,
                                 std::conditional_t<kType == KvType::f16, Half, int8_t>>;
    for (int n = 0; n < ND; ++n) value[n] = load(reinterpret_cast<const T*>(row) + column + 16 * n);
  }
}

// Bytes of `features` features of a type.
constexpr int64_t value_bytes(KvType type, int64_t features) {
  return type == KvType::int4 ? features / 2 : type == KvType::int8 ? features
         : type == KvType::f16 ? 2 * features : 4 * features;
}

// Which keys and features a sum is over; what it starts from, for each query, or null for 0.
struct ValueRange {
  int key_end;
  int64_t dim;  // of a value
  int64_t begin, end;  // features
  const float* starts;
};

// sums[i][column ...] = start + sum over keys of weight times code, for ND registers of features.
template <int NQ, int ND, KvType kType>
PELLUCID_INLINE void value_columns(const float* weights, const Block& block, Ahead ahead,
                                   const ValueRange& range, int64_t column, float* sums,
                                   int64_t sums_stride) {
  F32x16 y[NQ][ND];
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) y[i][n] = range.starts ? splat(range.starts[i]) : zero();
  const int64_t row_bytes = value_bytes(kType, range.dim), offset = value_bytes(kType, column);
  for (int s = block.begin; s * kSubBlock < range.key_end; ++s) {
    const int left = range.key_end - s * static_cast<int>(kSubBlock);
    const int keys = left < kSubBlock ? left : static_cast<int>(kSubBlock);
    const std::byte *v = block.values.codes[s], *next = ahead[s] + offset;
    const float* w = weights + s * kSubBlock;
    for (int key = 0; key < keys; ++key, v += row_bytes, next += row_bytes, ++w) {
      F32x16 value[ND];
      load_values<kType, ND>(v, column, value);
      for (int n = 0; n < value_bytes(kType, 16 * ND); n += 64) __builtin_prefetch(next + n);
      for (int i = 0; i < NQ; ++i) {
        const F32x16 weight = splat(w[i * kKeyBlock]);
        for (int n = 0; n < ND; ++n) y[i][n] = fma(weight, value[n], y[i][n]);
      }
    }
  }
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) store(sums + i * sums_stride + column + 16 * n, y[i][n]);
}

template <int NQ, KvType kType>
__attribute__((noinline)) void value_tile(const float* weights, const Block& block, Ahead ahead,
                                          const ValueRange& range, float* sums, int64_t sums_stride) {
  constexpr int kFit = columns_for(NQ) < 4 ? columns_for(NQ) : 4;
  constexpr int kLeast = kType == KvType::int4 ? 2 : 1;  // its bytes hold two registers' features
  constexpr int kColumns = kFit < kLeast ? kLeast : kFit;
  int64_t column = range.begin;
  for (; column + 16 * kColumns <= range.end; column += 16 * kColumns)
    value_columns<NQ, kColumns, kType>(weights, block, ahead, range, column, sums, sums_stride);
  for (; column < range.end; column += 16 * kLeast)
    value_columns<NQ, kLeast, kType>(weights, block, ahead, range, column, sums, sums_stride);
}

// Weights [count][kKeyBlock] times the scales of block b of the values, for keys before `key_end`, in
// `scaled`; `starts`: less their sums with the zeros. Keys of weight 0 stay 0 whatever their scale.
template <KvType kType>
PELLUCID_INLINE void scale_weights(const float* weights, int count, const Block& block, int64_t b,
                                   int key_end, float* scaled, float* starts) {
  F32x16 start[kTallest];
  for (int i = 0; i < count; ++i) start[i] = zero();
  for (int s = block.begin; s * kSubBlock < key_end; ++s) {
    const Grids grids = grids_of<kType>(block.values.params[s], b);
    const F32x16 zeros = grids.fourths * splat(-0.25f);
    for (int i = 0; i < count; ++i) {
      const int64_t at = i * kKeyBlock + s * kSubBlock;
      const F32x16 w = load(weights + at);
      const Mask seen = less(zero(), w);
      const F32x16 of_codes = select(seen, w * grids.scale, zero());
      store(scaled + at, of_codes);
      if constexpr (kType == KvType::int4)
        start[i] = select(seen, fma(of_codes, zeros, start[i]), start[i]);
    }
  }
  for (int i = 0; i < count; ++i) starts[i] = sum(start[i]);
}

// The codes of a block's values as floats, for items whose many tiles would each convert them.
template <KvType kType>
PELLUCID_INLINE void widen_values(const Block& block, int64_t dim, Side* wide, float* space) {
  for (int s = block.begin; s < block.end; ++s, space += kSubBlock * dim) {
    wide->codes[s] = reinterpret_cast<const std::byte*>(space);
    for (int64_t key = 0; key < kSubBlock; ++key)
      for (int64_t column = 0; column < dim; column += kType == KvType::int4 ? 32 : 16) {
        F32x16 value[kType == KvType::int4 ? 2 : 1];
        load_values<kType>(block.values.codes[s] + key * value_bytes(kType, dim), column, value);
        store(space + key * dim + column, value[0]);
        if constexpr (kType == KvType::int4) store(space + key * dim + column + 16, value[1]);
      }
  }
}

}  // namespace pellucid::PELLUCID_ISA
