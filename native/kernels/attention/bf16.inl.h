// Attention with factors of bfloat16, for keys and values in half precision and heads of whole blocks of 32.
//
// Queries, keys, weights and values are rounded to bfloat16, each by itself; products are summed 32 at a time as the tiles
// of AMX do it (simd/amx_tiles.h), scores over features, values over keys: one query or 96, each sum has one order. A
// key that a query may not see has weight 0, and 32 products of 0 change no bit of a sum. A weight's sum l is of rounded
// weights, so that rounding leaves their shares.
//
// A factor's words hold two values of one block of 32, w and w + 16: the rows' factors [row][words], those that they meet
// in tiles of one block and 16 columns, [16 words][16].
#pragma once

#include "kernels/attention/bf16.h"
#include "kernels/attention/attention.inl.h"

namespace pellucid::PELLUCID_ISA {

// Defined by who includes this.
PELLUCID_INLINE void round_pairs(F32x16 low, F32x16 high, uint32_t* words);
PELLUCID_INLINE void begin_products(int64_t rows);  // of which no product has more
PELLUCID_INLINE void end_products();
PELLUCID_INLINE void multiply(const TileProduct& product);

constexpr int64_t kPairs = 16;       // words of a block of 32
constexpr int64_t kTileWords = 256;  // of one block and 16 columns
constexpr int64_t kHalfBlocks = kKeyBlock / 32;

// Where an item's factors and sums lie. Rows of a tile are an odd number of lines apart, to spread over a cache.
struct Bf16Space {
  int64_t dim, query_words;
  uint32_t *queries, *weights, *keys, *values;
  float *scores, *results;

  Bf16Space(float* scratch, int64_t dim_) : dim(dim_), query_words((dim_ / 32 | 1) * kPairs) {
    const auto words = [&](int64_t count) {
      float* begin = scratch;
      scratch += count;
      return reinterpret_cast<uint32_t*>(begin);
    };
    queries = words(kItemQueries * query_words);
    weights = words(kBf16Strip * kBf16WeightWords);
    keys = words(kKeyBlock * dim / 2);
    values = words(kKeyBlock * dim / 2);
    scores = scratch;
    results = scores + kBf16Strip * kBf16ScoreStride;
  }
};

// A row's floats as words.
PELLUCID_INLINE void round_row(const float* x, float factor, int64_t n, uint32_t* words) {
  for (int64_t i = 0; i < n; i += 32, words += kPairs)
    round_pairs(load(x + i) * splat(factor), load(x + i + 16) * splat(factor), words);
}

PELLUCID_INLINE void gather_bf16(const AttentionItem& item, const Bf16Space& space) {
  for (int64_t i = 0; i < item.n_queries; ++i) {
    const int64_t query = item.first_query + i;
    const float* row = item.q + query / item.group * item.q_stride + query % item.group * item.head_dim;
    round_row(row, item.scale * kLog2E, space.dim, space.queries + i * space.query_words);
  }
}

// Keys of the block's sub-blocks: a tile for each sub-block and block of features, in that order.
PELLUCID_INLINE void open_keys(const Block& block, const Block& next, const Bf16Space& space) {
  for (int s = block.begin; s < block.end; ++s) {
    const auto* from = reinterpret_cast<const Half*>(block.keys.codes[s]);
    const std::byte* ahead = next.keys.codes[s] == nullptr ? block.keys.codes[s] : next.keys.codes[s];
    uint32_t* to = space.keys + s * space.dim / 32 * kTileWords;
    for (int64_t d = 0; d < space.dim; d += 32, from += 32 * kSubBlock)
      for (int64_t p = 0; p < kPairs; ++p, to += 16, ahead += 64) {
        __builtin_prefetch(ahead);
        round_pairs(load(from + p * kSubBlock), load(from + (p + 16) * kSubBlock), to);
      }
  }
}

// Values of keys before `key_end`, others zeros: for each 16 features a tile for each two sub-blocks.
PELLUCID_INLINE void open_values(const Block& block, const Block& next, int key_end, const Bf16Space& space) {
  for (int pair = block.begin / 2; pair < (block.end + 1) / 2; ++pair) {
    const int s = 2 * pair;
    const auto place = [&](const Block& b, int sub) {
      return sub < b.begin || sub >= b.end ? nullptr : reinterpret_cast<const Half*>(b.values.codes[sub]);
    };
    const Half *low = place(block, s), *high = place(block, s + 1);
    const Half *ahead[2] = {place(next, s), place(next, s + 1)};
    for (int p = 0; p < kPairs; ++p) {
      const bool has_low = low != nullptr && 32 * pair + p < key_end;
      const bool has_high = high != nullptr && 32 * pair + 16 + p < key_end;
      uint32_t* to = space.values + pair * kTileWords + p * 16;
      for (const Half* line : ahead)
        for (int64_t f = 0; line != nullptr && f < space.dim; f += 32) __builtin_prefetch(line + p * space.dim + f);
      for (int64_t f = 0; f < space.dim; f += 16, to += kHalfBlocks * kTileWords)
        round_pairs(has_low ? load(low + p * space.dim + f) : zero(),
                    has_high ? load(high + p * space.dim + f) : zero(), to);
    }
  }
}

// The nearest number of 8 bits.
PELLUCID_INLINE F32x16 rounded_weight(F32x16 x) {
  const F32x16 split = x * splat(65537.0f);
  return split - (split - x);
}

// Weights of a query's keys as words, for whole pairs of sub-blocks; their sum.
PELLUCID_INLINE float weigh_bf16(const float* scores, Visible seen, int begin, int end, float m, uint32_t* words) {
  F32x16 total = zero();
  for (int k = begin; k < end; k += 32, words += kPairs) {
    F32x16 weight[2];
    for (int half = 0; half < 2; ++half) {
      const int at = k + 16 * half;
      weight[half] = rounded_weight(exp2_down(load(scores + at) - splat(m)));
      if (!seen.all(at)) weight[half] = select(seen.mask(at), weight[half], zero());
      total = total + weight[half];
    }
    round_pairs(weight[0], weight[1], words);
  }
  return sum(total);
}

// Up to kBf16Strip queries, from the item's query `first` on, and one key block.
PELLUCID_INLINE void attend_strip(const AttentionItem& item, const Bf16Space& space, const Block& block, int64_t base,
                                  int64_t first, int count, float* states) {
  const int64_t dim = space.dim, stride = state_size(*item.layer);
  const int begin = block.begin / 2 * 32, end = (block.end + 1) / 2 * 32;
  const int k_begin = block.begin * 16, k_end = block.end * 16;
  multiply({space.queries + first * space.query_words, space.query_words, count, dim / 32,
            space.keys + block.begin * dim / 32 * kTileWords, dim / 32 * kTileWords, block.end - block.begin,
            space.scores + k_begin, kBf16ScoreStride});
  Visible visible[kBf16Strip];
  float m[kBf16Strip];
  for (int i = 0; i < count; ++i) {
    const int64_t query = item.first_query + first + i, position = item.start + query / item.group;
    const int64_t from = item.window > 0 ? position + 1 - item.window - base : 0, to = position + 1 - base;
    visible[i].begin = from < 0 ? 0 : from > kKeyBlock ? static_cast<int>(kKeyBlock) : static_cast<int>(from);
    visible[i].end = to > kKeyBlock ? static_cast<int>(kKeyBlock) : to < 0 ? 0 : static_cast<int>(to);
    float* scores = space.scores + i * kBf16ScoreStride;
    if (item.softcap > 0.0f || item.slopes != nullptr)
      adjust(scores, k_begin, k_end, item.softcap * kLog2E,
             item.slopes == nullptr ? 0.0f : item.slopes[query % item.group] * kLog2E, base - position);
    m[i] = largest_score(scores, visible[i], k_begin, k_end);
  }
  for (int i = 0; i < count; ++i) {
    float* result = space.results + i * stride;
    result[0] = m[i];
    // Nothing is seen: any m will do for weights that are all 0.
    result[1] = weigh_bf16(space.scores + i * kBf16ScoreStride, visible[i], begin, end,
                           visible[i].begin < visible[i].end ? m[i] : 0.0f, space.weights + i * kBf16WeightWords);
  }
  multiply({space.weights, kBf16WeightWords, count, (end - begin) / 32, space.values + begin / 32 * kTileWords,
            kHalfBlocks * kTileWords, dim / 16, space.results + 16, stride});
  merge(states + first * stride, space.results, count, dim);
}

void attend_bf16(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states, int64_t states_step,
                 float* scratch) {
  const int64_t stride = state_size(*item.layer), last_row = (item.first_query + item.n_queries - 1) / item.group;
  const Bf16Space space(scratch, item.head_dim);
  begin_products(item.n_queries);
  gather_bf16(item, space);
  Block block = find_block(item, first_block);
  for (int64_t b = first_block; b < end_block; ++b, states += states_step) {
    if (b == first_block || states_step != 0) begin_states(states, item.n_queries, stride);
    const Block next = b + 1 < end_block ? find_block(item, b + 1) : Block{};
    const int64_t keys = item.start + last_row + 1 - b * kKeyBlock;
    open_keys(block, next, space);
    open_values(block, next, static_cast<int>(keys < kKeyBlock ? keys : kKeyBlock), space);
    for (int64_t first = 0; first < item.n_queries; first += kBf16Strip) {
      const int64_t left = item.n_queries - first, count = left < kBf16Strip ? left : kBf16Strip;
      const int64_t row = (item.first_query + first + count - 1) / item.group;
      const int64_t strip_keys = item.start + row + 1 - b * kKeyBlock;
      Block seen = block;
      if (strip_keys < block.end * kSubBlock) seen.end = static_cast<int>((strip_keys + kSubBlock - 1) / kSubBlock);
      if (seen.begin < seen.end) attend_strip(item, space, seen, b * kKeyBlock, first, static_cast<int>(count), states);
    }
    block = next;
  }
  end_products();
}

}  // namespace pellucid::PELLUCID_ISA
