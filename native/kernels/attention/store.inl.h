// A position's key and value into its page, in the types of the cache.
#pragma once

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

// A block as whole numbers: x ~ scale * code + minimum.
struct Codes {
  Half scale, minimum;
};
constexpr Half kHalfNaN = 0x7e00;

// x in half precision, held at its ends, and back.
PELLUCID_INLINE float as_half(float x, Half* h) {
  *h = to_half(x > kHalfMax ? kHalfMax : x < -kHalfMax ? -kHalfMax : x);
  return from_half(*h);
}

// int8: scale = max |x| / 127, codes -127 .. 127. int4: minimum = min x, scale = (max x - minimum) / 15,
// codes 0 .. 15. Scales and minima are in half precision before codes are rounded, half to even. A
// block with what is no number gets a scale that is none.
template <KvType kType, int R>
PELLUCID_INLINE Codes round_block(F32x16 (&x)[R]) {
  const float low = least(x), high = most(x);
  Codes codes{0, 0};
  float scale, minimum = 0.0f, last = 15.0f, first = 0.0f;
  if constexpr (kType == KvType::int8) {
    last = 127.0f;
    first = -127.0f;
    scale = as_half((high > -low ? high : -low) / last, &codes.scale);
  } else {
    minimum = as_half(low, &codes.minimum);
    const float range = high - minimum;
    scale = as_half((range > 0.0f ? range : 0.0f) / last, &codes.scale);
  }
  const float bad = fault(x);
  const F32x16 factor = splat(scale > 0.0f ? 1.0f / scale : 0.0f);
  for (int r = 0; r < R; ++r) {
    const F32x16 exact = (x[r] - splat(minimum)) * factor;
    x[r] = bad == 0.0f ? nearest(max(splat(first), min(splat(last), exact))) : zero();
  }
  return bad == 0.0f ? codes : Codes{kHalfNaN, 0};
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
    const Codes codes = round_block<kType>(x);
    *params = codes.scale;
    params += kSubBlock;
    if constexpr (kType == KvType::int4) {
      *params = codes.minimum;
      params += kSubBlock;
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
  for_each_block(dim, [&]<int R>(int64_t begin, F32x16(&x)[R]) {
    load_block(w, begin, dim, x);
    const float minimum = as_half(least(x), &params[kSubBlock]);
    const float range = most(x) - minimum;
    const float scale = as_half((range > 0.0f ? range : 0.0f) / 15.0f, &params[0]);
    params += 2 * kSubBlock;
    const float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t j = begin; j < begin + 16 * R; ++j) {
      const float from_least = w[j] - minimum, exact = from_least * factor;
      const float inside = exact < 0.0f ? 0.0f : exact > 15.0f ? 15.0f : exact;
      const float code = (inside + kRound) - kRound;
      bytes[j] = static_cast<uint8_t>(static_cast<int>(code));
      const F32x16 error = splat(__builtin_fmaf(scale, code, -from_least));
      const float* row = rows + j * dim;
      for (int64_t i = (j + 1) / 16 * 16; i < dim; i += 16)
        store(w + i, fma(error, load(row + i), load(w + i)));
    }
  });
}

template <KvType kType>
PELLUCID_INLINE void store_key_blocks(const float* k, const float* offset, const float* feedback,
                                      int64_t n, const KvSide& side, std::byte* head, int64_t sub,
                                      int64_t lane) {
  uint8_t bytes[kVectorBytes];
  auto* words = reinterpret_cast<uint8_t*>(head + side.codes_at + sub * side.codes) + 4 * lane;
  auto* params = reinterpret_cast<Half*>(head + side.params_at + sub * side.params) + lane;
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
  auto* params = reinterpret_cast<Half*>(head + side.params_at + sub * side.params) + lane;
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
