// Scores of a key block's keys: with keys in floats by one chain of fused multiply-adds over the
// features, with keys in blocks by whole numbers.
//
// Keys in blocks meet queries of 16 bits: a query's block is turned as the keys' are (rotate.inl.h) and
// rounded to multiples of its largest magnitude / 32767, which loses a 256th of what int8 keys lose. A
// block's products are summed as integers, exactly, and scaled once; blocks are added in order.
#pragma once

#include <type_traits>

#include "kernels/attention/store.inl.h"

namespace pellucid::PELLUCID_ISA {

constexpr int kSubBlocks = static_cast<int>(kKeyBlock / kSubBlock);

// Vectors of keys (or features) a tile of so many queries takes at a time: as many as fit beside
// the running sums, since each of those is a chain of dependent additions.
constexpr int columns_for(int queries) {
  const int fit = kVectors / (queries + 1);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
// The tallest tile whose sums stay in registers.
constexpr int kTallest = kVectors - 1 < kTileQueries ? kVectors - 1 : static_cast<int>(kTileQueries);

// The keys, or the values, of one key block's sub-blocks, wherever their pages lie.
struct Side {
  KvType type;
  const std::byte* codes[kSubBlocks];
  const Half* params[kSubBlocks];
};

struct Block {
  Side keys, values;
  int begin, end;  // sub-blocks that some query sees
};

// What is read next, asked for while something else is computed: the tile kernels walk over as many
// bytes of it as they read themselves. Keys and values of one block come to more than the nearest
// cache holds beside them, so keys ask for their values and values for the next block's keys.
using Ahead = const std::byte* const*;

// Queries of a tile side by side for each feature, as floats [dim][count], or for keys in blocks:
// words of two 16-bit features [dim / 2][count], then for each block of one scale what its sum starts
// from, its scale, and its scale times -1/4 of the sum of its features, each [count], and what each
// score begins with.
struct BlockQueries {
  const int32_t *words, *starts;
  const float *scales, *sums, *bases;

  BlockQueries(const float* q, KvType keys, int64_t dim, int count)
      : words(reinterpret_cast<const int32_t*>(q)),
        starts(words + dim / 2 * count),
        scales(q + (dim / 2 + blocks(keys, dim)) * count),
        sums(scales + blocks(keys, dim) * count),
        bases(sums + blocks(keys, dim) * count) {}
  static int64_t blocks(KvType keys, int64_t dim) {
    return (dim + scaled_block(keys) - 1) / scaled_block(keys);
  }
};

// scores[i][key] = q_i . k for the sub-blocks [s, s + NS).
template <int NQ, int NS, class T>
PELLUCID_INLINE void score_floats(const float* q, const std::byte* const* codes, Ahead ahead,
                                  int64_t dim, float* scores) {
  F32x16 sums[NQ][NS];
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) sums[i][s] = zero();
  constexpr int64_t kStep = kSubBlock * static_cast<int64_t>(sizeof(T));
  for (int64_t d = 0; d < dim; ++d) {
    F32x16 k[NS];
    for (int s = 0; s < NS; ++s) {
      k[s] = load(reinterpret_cast<const T*>(codes[s] + d * kStep));
      __builtin_prefetch(ahead[s] + d * kStep);
    }
    for (int i = 0; i < NQ; ++i) {
      const F32x16 x = splat(q[d * NQ + i]);
      for (int s = 0; s < NS; ++s) sums[i][s] = fma(x, k[s], sums[i][s]);
    }
  }
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) store(scores + i * kKeyBlock + s * kSubBlock, sums[i][s]);
}

// The pair n of each word, of `kType`'s 2 or 4.
template <KvType kType, int n>
PELLUCID_INLINE I32x16 pair_of(I32x16 words) {
  if constexpr (kType == KvType::int8)
    return pairs<8 * n, 0xff>(words);
  else
    return pairs<4 * n, 0xf>(words);
}

template <KvType kType, int NQ, int NS, int n>
PELLUCID_INLINE void add_pairs(const I32x16 (&words)[NS], const int32_t* q, I32x16 (&sums)[NQ][NS]) {
  I32x16 k[NS];
  for (int s = 0; s < NS; ++s) k[s] = pair_of<kType, n>(words[s]);
  for (int i = 0; i < NQ; ++i) {
    const I32x16 x = splat_int(q[n * NQ + i]);
    for (int s = 0; s < NS; ++s) sums[i][s] = dot_pairs(sums[i][s], k[s], x);
  }
}

// Of one block of 16 positions: scales, and in int4 four times the zeros.
struct Grids {
  F32x16 scale, fourths;
};
template <KvType kType>
PELLUCID_INLINE Grids grids_of(const Half* params, int64_t block) {
  if constexpr (kType == KvType::int8) return {load(params + block * kSubBlock), zero()};
  const I32x16 words = load_words(params + block / 2 * 2 * kSubBlock);
  const int shift = block % 2 == 0 ? 0 : 16;
  return {float_of_bits<18>(field(words, shift + 6, 0x3ff), kScaleBase) * splat(kScaleUnit),
          to_float(field(words, shift, 63))};
}

// One block of `features` features added to the scores of sub-blocks [0, NS).
template <KvType kType, int NQ, int NS>
PELLUCID_INLINE void score_block(const BlockQueries& q, int64_t begin, int64_t features,
                                 const std::byte* const* codes, const Half* const* params,
                                 Ahead ahead, float* scores) {
  constexpr int64_t kPairs = kType == KvType::int8 ? 2 : 4;
  const int64_t b = begin / scaled_block(kType), step = begin / 2 / kPairs;
  I32x16 sums[NQ][NS];
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) sums[i][s] = splat_int(q.starts[b * NQ + i]);
  for (int64_t d = 0; d < features / 2 / kPairs; ++d) {
    const int64_t at = (step + d) * 4 * kSubBlock;
    const int32_t* x = q.words + (begin / 2 + d * kPairs) * NQ;
    I32x16 words[NS];
    for (int s = 0; s < NS; ++s) {
      words[s] = load_words(codes[s] + at);
      __builtin_prefetch(ahead[s] + at);
    }
    add_pairs<kType, NQ, NS, 0>(words, x, sums);
    add_pairs<kType, NQ, NS, 1>(words, x, sums);
    if constexpr (kPairs == 4) {
      add_pairs<kType, NQ, NS, 2>(words, x, sums);
      add_pairs<kType, NQ, NS, 3>(words, x, sums);
    }
  }
  for (int s = 0; s < NS; ++s) {
    const Grids grids = grids_of<kType>(params[s], b);
    for (int i = 0; i < NQ; ++i) {
      float* score = scores + i * kKeyBlock + s * kSubBlock;
      F32x16 product = to_float(sums[i][s]) * splat(q.scales[b * NQ + i]);
      if constexpr (kType == KvType::int4)
        product = fma(grids.fourths, splat(q.sums[b * NQ + i]), product);
      store(score, fma(grids.scale, product, b == 0 ? splat(q.bases[i]) : load(score)));
    }
  }
}

template <int NQ, int NS, KvType kType>
PELLUCID_INLINE void score_columns(const float* q, const Side& keys, int s, Ahead ahead, int64_t dim,
                                   float* scores) {
  float* to = scores + s * kSubBlock;
  if constexpr (kType == KvType::f32 || kType == KvType::f16) {
    using T = std::conditional_t<kType == KvType::f32, float, Half>;
    score_floats<NQ, NS, T>(q, keys.codes + s, ahead + s, dim, to);
  } else {
    const BlockQueries queries(q, kType, dim, NQ);
    constexpr int64_t kBlock = scaled_block(kType);
    for (int64_t begin = 0; begin < dim; begin += kBlock) {
      const int64_t features = dim - begin < kBlock ? dim - begin : kBlock;
      score_block<kType, NQ, NS>(queries, begin, features, keys.codes + s, keys.params + s, ahead + s,
                                 to);
    }
  }
}

// Scores of the block's keys in [NQ][kKeyBlock].
template <int NQ, KvType kType>
__attribute__((noinline)) void score_tile(const float* q, const Block& block, int64_t dim,
                                          float* scores) {
  constexpr int kColumns = columns_for(NQ);
  int s = block.begin;
  for (; s + kColumns <= block.end; s += kColumns)
    score_columns<NQ, kColumns, kType>(q, block.keys, s, block.values.codes, dim, scores);
  for (; s < block.end; ++s)
    score_columns<NQ, 1, kType>(q, block.keys, s, block.values.codes, dim, scores);
}

// A block of one query for keys in blocks: `stride` words, starts, scales and sums lie between its
// own, and as many between the scaled blocks of its features.
template <int R>
PELLUCID_INLINE void round_query(F32x16 (&x)[R], KvType keys, int64_t stride, int32_t* words,
                                 int32_t* starts, float* scales, float* sums) {
  transform(x, kRotateBack);  // times the keys' factor and H H: 1
  F32x16 sizes[R];
  for (int r = 0; r < R; ++r) sizes[r] = abs(x[r]);
  const float largest = most(sizes), bad = fault(x);
  const F32x16 factor = splat(largest > 0.0f ? 32767.0f / largest : 0.0f);
  const float scale = bad == 0.0f ? largest / 32767.0f : bad;
  const int registers = keys == KvType::int4 ? static_cast<int>(kInt4Block / 16) : R;
  int32_t sum = 0;
  for (int r = 0; r < R; ++r) {
    float whole[16];
    store(whole, bad == 0.0f ? nearest(max(splat(-32767.0f), min(splat(32767.0f), x[r] * factor)))
                             : zero());
    for (int i = 0; i < 16; i += 2) {
      const auto low = static_cast<int32_t>(whole[i]), high = static_cast<int32_t>(whole[i + 1]);
      sum += low + high;
      words[(8 * r + i / 2) * stride] =
          static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xffffu));
    }
    if ((r + 1) % registers != 0) continue;
    const int64_t at = r / registers * stride;
    starts[at] = keys == KvType::int8 ? -128 * sum : 0;
    scales[at] = scale;
    sums[at] = -0.25f * scale * static_cast<float>(sum);
    sum = 0;
  }
}

// What the scores of keys stored less `offset` lack, for each query of a tile: q . offset.
PELLUCID_INLINE void set_bases(const AttentionItem& item, int64_t first_query, int count,
                               const float* offset, float* q) {
  const int64_t dim = item.layer->keys.dim, n = item.head_dim;
  float* bases = q + (dim / 2 + 3 * BlockQueries::blocks(item.layer->keys.type, dim)) * count;
  const float scale = item.scale * kLog2E;
  for (int i = 0; i < count; ++i) {
    const int64_t query = first_query + i;
    const float* row = item.q + query / item.group * item.q_stride + query % item.group * n;
    F32x16 total = zero();
    for (int64_t d = 0; d < n; d += 16) {
      F32x16 x[1], y[1];
      load_block(row, d, n, x);
      load_block(offset, d, n, y);
      total = fma(x[0], y[0], total);
    }
    bases[i] = sum(total) * scale;
  }
}

// Queries side by side as `BlockQueries` reads them (or floats), times the scale and log2 e, so that a
// weight is a power of two.
PELLUCID_INLINE void gather(const AttentionItem& item, int64_t first_query, int count, float* q) {
  const float scale = item.scale * kLog2E;
  const KvSide& keys = item.layer->keys;
  const int64_t dim = keys.dim, n = item.head_dim;
  const int64_t n_blocks = keys.in_blocks() ? BlockQueries::blocks(keys.type, dim) : 0;
  for (int i = 0; i < count; ++i) {
    const int64_t query = first_query + i;
    const float* row = item.q + query / item.group * item.q_stride + query % item.group * n;
    if (!keys.in_blocks()) {
      for (int64_t d = 0; d < n; ++d) q[d * count + i] = row[d] * scale;
      continue;
    }
    auto* words = reinterpret_cast<int32_t*>(q);
    int32_t* starts = words + dim / 2 * count;
    float *scales = q + (dim / 2 + n_blocks) * count, *sums = scales + n_blocks * count;
    sums[n_blocks * count + i] = 0.0f;
    for_each_block(dim, [&]<int R>(int64_t begin, F32x16(&x)[R]) {
      load_block(row, begin, n, x);
      for (int r = 0; r < R; ++r) x[r] = x[r] * splat(scale);
      const int64_t at = begin / scaled_block(keys.type) * count + i;
      round_query(x, keys.type, count, words + begin / 2 * count + i, starts + at, scales + at,
                  sums + at);
    });
  }
}

}  // namespace pellucid::PELLUCID_ISA
