// A position's key and value into its page, in the types of the cache.
#pragma once

#include <bit>

#include "kernels/attention/rotate.inl.h"

namespace pellucid::PELLUCID_ISA {

PELLUCID_INLINE F32x16 held(F32x16 x) { return max(splat(-kHalfMax), min(splat(kHalfMax), x)); }
PELLUCID_INLINE F32x16 nearest(F32x16 x) { return (x + splat(kRound)) - splat(kRound); }

// 0, or NaN if any lane is infinite or none.
template <int R>
PELLUCID_INLINE float fault(const F32x16 (&x)[R]) {
  F32x16 probe = zero();
  for (int r = 0; r < R; ++r) probe = fma(x[r], zero(), probe);
  return sum(probe);
}
template <int R>
PELLUCID_INLINE float least(const F32x16 (&x)[R]) {
  F32x16 m = zero() - x[0];
  for (int r = 1; r < R; ++r) m = max(m, zero() - x[r]);
  return -max_lane(m);
}
template <int R>
PELLUCID_INLINE float most(const F32x16 (&x)[R]) {
  F32x16 m = x[0];
  for (int r = 1; r < R; ++r) m = max(m, x[r]);
  return max_lane(m);
}

constexpr Half kHalfNaN = 0x7e00;

// x in half precision, held at its ends, and back.
PELLUCID_INLINE float as_half(float x, Half* h) {
  *h = to_half(x > kHalfMax ? kHalfMax : x < -kHalfMax ? -kHalfMax : x);
  return from_half(*h);
}

// int8: scale = max |x| / 127, in half precision before codes, -127 .. 127, are rounded, half to even;
// of a block with what is no number, none.
template <int R>
PELLUCID_INLINE Half round_int8(F32x16 (&x)[R]) {
  const float low = least(x), high = most(x), bad = fault(x);
  Half half;
  const float scale = as_half((high > -low ? high : -low) / 127.0f, &half);
  const F32x16 factor = splat(scale > 0.0f ? 1.0f / scale : 0.0f);
  for (int r = 0; r < R; ++r)
    x[r] = bad == 0.0f ? nearest(max(splat(-127.0f), min(splat(127.0f), x[r] * factor))) : zero();
  return bad == 0.0f ? half : kHalfNaN;
}

// Where codes of int4 lie: x ~ scale * (code - zero), as `bits` (kv_cache.h) say.
struct Grid {
  float scale, zero;
  uint16_t bits;
};
constexpr uint16_t kNoGrid = 0xffff;
constexpr uint32_t kScaleBase = 224u << 23;  // exponents of 5 bits lie at the upper end of a float's,
constexpr float kScaleUnit = 0x1p-113f;      // so that their last is no number, and begin at 2^-16

// The grid whose 16 points, 0 near or among them, lie over [low, high].
PELLUCID_INLINE Grid grid_over(float low, float high) {
  if (low > 0.0f) low = 0.0f;
  if (high < 0.0f) high = 0.0f;
  const float wanted = (high - low) / 15.0f * (1.0f / kScaleUnit);
  // Rounded to 5 bits of its fraction.
  const auto place = static_cast<int32_t>((std::bit_cast<uint32_t>(wanted) + (1u << 17)) >> 18) -
                     static_cast<int32_t>(kScaleBase >> 18);
  const uint32_t scale_bits = place < 0 ? 0 : place > 991 ? 991 : static_cast<uint32_t>(place);
  Grid grid;
  grid.scale = std::bit_cast<float>(scale_bits << 18 | kScaleBase) * kScaleUnit;
  const float middle = (low + high) * 0.5f;
  const float fourths = high > low ? 30.0f - 4.0f * middle / grid.scale : 28.0f;  // of zeros, 0 is a point
  const float held_inside = fourths < 0.0f ? 0.0f : fourths > 63.0f ? 63.0f : fourths;
  const float zero_bits = (held_inside + kRound) - kRound;
  grid.zero = zero_bits * 0.25f;
  grid.bits = static_cast<uint16_t>(scale_bits << 6 | static_cast<uint32_t>(zero_bits));
  return grid;
}

// Codes 0 .. 15, half to even, of 32 features, in place; of what is no number, no grid.
PELLUCID_INLINE uint16_t round_int4(F32x16 (&x)[2]) {
  if (fault(x) != 0.0f) {
    x[0] = x[1] = zero();
    return kNoGrid;
  }
  const Grid grid = grid_over(least(x), most(x));
  const F32x16 factor = splat(1.0f / grid.scale), shift = splat(grid.zero);
  for (auto& part : x) part = nearest(max(zero(), min(splat(15.0f), part * factor + shift)));
  return grid.bits;
}

// The codes of v (less `less`) as bytes, int8's plus `shift`, and the parameters of its blocks, 16 positions apart.
template <KvType kType>
PELLUCID_INLINE void round_vector(const float* v, const float* less, int64_t n, int64_t dim, int shift, uint8_t* bytes,
                                  Half* params) {
  for_each_block(dim, [&]<int R>(int64_t begin, F32x16(&x)[R]) {
    load_block(v, begin, n, x);
    if (less != nullptr) {
      F32x16 offset[R];
      load_block(less, begin, n, offset);
      for (int r = 0; r < R; ++r) x[r] = x[r] - offset[r];
    }
    for (int r = 0; r < R; ++r) x[r] = held(x[r]);
    transform(x, rotate_factor(R));
    if constexpr (kType == KvType::int8) {
      *params = round_int8(x);
      params += kSubBlock;
    } else {
      for (int r = 0; r < R; r += 2) {
        F32x16 half[2] = {x[r], x[r + 1]};
        params[r / 2] = round_int4(half);
        x[r] = half[0];
        x[r + 1] = half[1];
      }
      params += 2 * kSubBlock;
    }
    float whole[16 * R];
    for (int r = 0; r < R; ++r) store(whole + 16 * r, x[r]);
    for (int i = 0; i < 16 * R; ++i)
      bytes[begin + i] = static_cast<uint8_t>(static_cast<int>(whole[i]) + shift);
  });
}

constexpr int64_t kVectorBytes = kMostFed;  // codes of a vector are made in pieces of so many features

// The same for int4, each feature's error fed on into those after it: after feature j is rounded, its
// error times rows[j] is taken from the features beyond (rows[j][i] is 0 for i <= j). With rows made
// of what queries are like, errors end where queries do not look (Frantar et al. 2022, "GPTQ", for
// weights). Where a feature is no number, as without.
PELLUCID_INLINE void round_fed(const float* v, const float* less, const float* rows, int64_t n,
                               int64_t dim, uint8_t* bytes, Half* params) {
  float w[kVectorBytes];
  float bad = 0.0f;
  for_each_block(dim, [&]<int R>(int64_t begin, F32x16(&x)[R]) {
    load_block(v, begin, n, x);
    F32x16 offset[R];
    for (int r = 0; r < R; ++r) offset[r] = zero();
    if (less != nullptr) load_block(less, begin, n, offset);
    for (int r = 0; r < R; ++r) x[r] = held(x[r] - offset[r]);
    transform(x, rotate_factor(R));
    bad += fault(x);
    for (int r = 0; r < R; ++r) store(w + begin + 16 * r, x[r]);
  });
  if (bad != 0.0f) return round_vector<KvType::int4>(v, less, n, dim, 0, bytes, params);
  for (int64_t begin = 0; begin < dim; begin += kInt4Block) {
    F32x16 x[2];
    load_block(w, begin, dim, x);
    const Grid grid = grid_over(least(x), most(x));
    params[begin / kKvBlock * 2 * kSubBlock + begin % kKvBlock / kInt4Block] = grid.bits;
    const float factor = 1.0f / grid.scale;
    for (int64_t j = begin; j < begin + kInt4Block; ++j) {
      const float exact = w[j] * factor + grid.zero;
      const float inside = exact < 0.0f ? 0.0f : exact > 15.0f ? 15.0f : exact;
      const float code = (inside + kRound) - kRound;
      bytes[j] = static_cast<uint8_t>(static_cast<int>(code));
      const F32x16 error = splat(__builtin_fmaf(grid.scale, code - grid.zero, -w[j]));
      const float* row = rows + j * dim;
      for (int64_t i = (j + 1) / 16 * 16; i < dim; i += 16)
        store(w + i, fma(error, load(row + i), load(w + i)));
    }
  }
}

// Where a position's parameters of a type in blocks begin.
template <KvType kType>
PELLUCID_INLINE Half* params_of(const KvSide& side, std::byte* head, int64_t sub, int64_t lane) {
  return reinterpret_cast<Half*>(head + side.params_at + sub * side.params) +
         (kType == KvType::int4 ? 2 * lane : lane);
}

template <KvType kType>
PELLUCID_INLINE void store_key_blocks(const float* k, const float* offset, const float* feedback,
                                      int64_t n, const KvSide& side, std::byte* head, int64_t sub,
                                      int64_t lane) {
  uint8_t bytes[kVectorBytes];
  auto* words = reinterpret_cast<uint8_t*>(head + side.codes_at + sub * side.codes) + 4 * lane;
  Half* params = params_of<kType>(side, head, sub, lane);
  constexpr int64_t kHalves = kType == KvType::int4 ? 2 : 1;
  for (int64_t from = 0; from < side.dim; from += kVectorBytes) {
    const int64_t count = side.dim - from < kVectorBytes ? side.dim - from : kVectorBytes;
    const int64_t left = n - from > 0 ? n - from : 0;
    Half* to = params + from / kKvBlock * kHalves * kSubBlock;
    const float* less = offset == nullptr ? nullptr : offset + from;
    if (kType == KvType::int4 && feedback != nullptr)  // of vectors of one piece
      round_fed(k, offset, feedback, n, side.dim, bytes, to);
    else
      round_vector<kType>(k + from, less, left, count, kType == KvType::int8 ? 128 : 0, bytes, to);
    if constexpr (kType == KvType::int8) {
      for (int64_t d = 0; d < count; d += 4, words += 4 * kSubBlock) {
        words[0] = bytes[d];
        words[1] = bytes[d + 2];
        words[2] = bytes[d + 1];
        words[3] = bytes[d + 3];
      }
    } else {
      for (int64_t d = 0; d < count; d += 8, words += 4 * kSubBlock) {
        const uint8_t* c = bytes + d;
        words[0] = static_cast<uint8_t>(c[0] | c[2] << 4);
        words[1] = static_cast<uint8_t>(c[4] | c[6] << 4);
        words[2] = static_cast<uint8_t>(c[1] | c[3] << 4);
        words[3] = static_cast<uint8_t>(c[5] | c[7] << 4);
      }
    }
  }
}

template <KvType kType>
PELLUCID_INLINE void store_value_blocks(const float* v, int64_t n, const KvSide& side, std::byte* head,
                                        int64_t sub, int64_t lane) {
  uint8_t bytes[kVectorBytes];
  auto* to = reinterpret_cast<uint8_t*>(head + side.codes_at + sub * side.codes) +
             lane * (side.codes / kSubBlock);
  Half* params = params_of<kType>(side, head, sub, lane);
  constexpr int64_t kHalves = kType == KvType::int4 ? 2 : 1;
  for (int64_t from = 0; from < side.dim; from += kVectorBytes) {
    const int64_t count = side.dim - from < kVectorBytes ? side.dim - from : kVectorBytes;
    const int64_t left = n - from > 0 ? n - from : 0;
    round_vector<kType>(v + from, nullptr, left, count, 0, bytes,
                        params + from / kKvBlock * kHalves * kSubBlock);
    if constexpr (kType == KvType::int8) {
      for (int64_t d = 0; d < count; ++d) *to++ = bytes[d];
    } else {
      for (int64_t d = 0; d < count; d += 32)
        for (int64_t i = 0; i < 16; ++i)
          *to++ = static_cast<uint8_t>(bytes[d + i] | bytes[d + 16 + i] << 4);
    }
  }
}

template <class T>
PELLUCID_INLINE void store_floats(T* to, const float* v, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 x = i + 16 <= n ? load(v + i) : load(v + i, static_cast<int>(n - i));
    if constexpr (sizeof(T) == 2) x = held(x);
    store(to + i, x);
  }
}

template <class T>
PELLUCID_INLINE void store_key_floats(const float* k, int64_t n, const KvSide& side, std::byte* head,
                                      int64_t sub, int64_t lane) {
  T* keys = reinterpret_cast<T*>(head + side.codes_at + sub * side.codes) + lane;
  for (int64_t d = 0; d < n; d += 16) {
    T part[16];
    const int64_t count = n - d < 16 ? n - d : 16;
    store_floats(part, k + d, count);
    for (int64_t i = 0; i < count; ++i) keys[(d + i) * kSubBlock] = part[i];
  }
}

template <class T>
PELLUCID_INLINE void store_value_floats(const float* v, int64_t n, const KvSide& side, std::byte* head,
                                        int64_t sub, int64_t lane) {
  store_floats(reinterpret_cast<T*>(head + side.codes_at + sub * side.codes) + lane * side.dim, v, n);
}

void store_kv(const float* k, const float* offset, const float* feedback, const float* v,
              const KvLayer& layer, int64_t kv_head, int64_t page, int64_t slot) {
  std::byte* head = layer.head(page, kv_head);
  const int64_t n = layer.head_dim, sub = slot / kSubBlock, lane = slot % kSubBlock;
  switch (layer.keys.type) {
    case KvType::f32: store_key_floats<float>(k, n, layer.keys, head, sub, lane); break;
    case KvType::f16: store_key_floats<Half>(k, n, layer.keys, head, sub, lane); break;
    case KvType::int8: store_key_blocks<KvType::int8>(k, offset, nullptr, n, layer.keys, head, sub, lane); break;
    case KvType::int4: store_key_blocks<KvType::int4>(k, offset, feedback, n, layer.keys, head, sub, lane); break;
  }
  switch (layer.values.type) {
    case KvType::f32: store_value_floats<float>(v, n, layer.values, head, sub, lane); break;
    case KvType::f16: store_value_floats<Half>(v, n, layer.values, head, sub, lane); break;
    case KvType::int8: store_value_blocks<KvType::int8>(v, n, layer.values, head, sub, lane); break;
    case KvType::int4: store_value_blocks<KvType::int4>(v, n, layer.values, head, sub, lane); break;
  }
}

}  // namespace pellucid::PELLUCID_ISA
