// The kernels of attention.h over F32x16; attention_<isa>.cpp compiles them for one instruction set.
#pragma once

#include "kernels/attention/attention.h"
#include "simd/f32x16.h"

namespace pellucid::PELLUCID_ISA {

constexpr int kSubBlocks = static_cast<int>(kKeyBlock / kSubBlock);
constexpr float kNothing = -__builtin_inff();

// Vectors of keys (or features) a tile of so many queries takes at a time: as many as fit beside
// the running sums, since each of those is a chain of dependent additions.
constexpr int columns_for(int queries) {
  const int fit = kVectors / (queries + 1);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
// The tallest tile whose sums stay in registers.
constexpr int kTallest = kVectors - 1 < kTileQueries ? kVectors - 1 : static_cast<int>(kTileQueries);

// The sub-blocks of one key block, wherever their pages lie.
template <class T>
struct Block {
  const T* keys[kSubBlocks];
  const T* values[kSubBlocks];
  int begin, end;  // sub-blocks that some query sees
};

// What is read next, asked for while something else is computed: the tile kernels walk over as many
// bytes of it as they read themselves. Keys and values of one block come to more than the nearest
// cache holds beside them, so keys ask for their values and values for the next block's keys.
template <class T>
using Ahead = const T* const*;

// scores[i][key] = q_i . k for the sub-blocks [s, s + NS). q: [head_dim][NQ].
template <int NQ, int NS, class T>
PELLUCID_INLINE void score_columns(const float* q, const T* const* keys, Ahead<T> ahead,
                                   int64_t head_dim, float* scores) {
  F32x16 sums[NQ][NS];
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) sums[i][s] = zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    F32x16 k[NS];
    for (int s = 0; s < NS; ++s) {
      k[s] = load(keys[s] + d * kSubBlock);
      __builtin_prefetch(ahead[s] + d * kSubBlock);
    }
    for (int i = 0; i < NQ; ++i) {
      const F32x16 x = splat(q[d * NQ + i]);
      for (int s = 0; s < NS; ++s) sums[i][s] = fma(x, k[s], sums[i][s]);
    }
  }
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) store(scores + i * kKeyBlock + s * kSubBlock, sums[i][s]);
}

template <int NQ, class T>
__attribute__((noinline)) void score_tile(const float* q, const Block<T>& block, int64_t head_dim,
                                          float* scores) {
  constexpr int kColumns = columns_for(NQ);
  int s = block.begin;
  for (; s + kColumns <= block.end; s += kColumns)
    score_columns<NQ, kColumns>(q, block.keys + s, block.values + s, head_dim,
                                scores + s * kSubBlock);
  for (; s < block.end; ++s)
    score_columns<NQ, 1>(q, block.keys + s, block.values + s, head_dim, scores + s * kSubBlock);
}

// sums[i][16 n ...] = sum over keys of weight times value, for ND registers of features.
template <int NQ, int ND, class T>
PELLUCID_INLINE void value_columns(const float* weights, const Block<T>& block, Ahead<T> ahead,
                                   int key_end, int64_t padded_dim, int64_t column, float* sums,
                                   int64_t sums_stride) {
  F32x16 y[NQ][ND];
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) y[i][n] = zero();
  for (int s = block.begin; s * kSubBlock < key_end; ++s) {
    const int left = key_end - s * static_cast<int>(kSubBlock);
    const int keys = left < kSubBlock ? left : static_cast<int>(kSubBlock);
    const T *v = block.values[s] + column, *next = ahead[s] + column;
    const float* w = weights + s * kSubBlock;
    for (int key = 0; key < keys; ++key, v += padded_dim, next += padded_dim, ++w) {
      F32x16 value[ND];
      for (int n = 0; n < ND; ++n) {
        value[n] = load(v + 16 * n);
        __builtin_prefetch(next + 16 * n);
      }
      for (int i = 0; i < NQ; ++i) {
        const F32x16 weight = splat(w[i * kKeyBlock]);
        for (int n = 0; n < ND; ++n) y[i][n] = fma(weight, value[n], y[i][n]);
      }
    }
  }
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) store(sums + i * sums_stride + column + 16 * n, y[i][n]);
}

template <int NQ, class T>
__attribute__((noinline)) void value_tile(const float* weights, const Block<T>& block, Ahead<T> ahead,
                                          int key_end, int64_t padded_dim, float* sums,
                                          int64_t sums_stride) {
  constexpr int kColumns = columns_for(NQ) < 4 ? columns_for(NQ) : 4;
  int64_t column = 0;
  for (; column + 16 * kColumns <= padded_dim; column += 16 * kColumns)
    value_columns<NQ, kColumns>(weights, block, ahead, key_end, padded_dim, column, sums,
                                sums_stride);
  for (; column < padded_dim; column += 16)
    value_columns<NQ, 1>(weights, block, ahead, key_end, padded_dim, column, sums, sums_stride);
}

template <class T>
struct TileKernels {
  void (*score)(const float*, const Block<T>&, int64_t, float*);
  void (*value)(const float*, const Block<T>&, Ahead<T>, int, int64_t, float*, int64_t);
};
// Indexed by the number of queries; one function out of line for each (gcc spills when all heights
// are inlined into one driver).
template <class T>
constexpr TileKernels<T> kTiles[] = {
    {nullptr, nullptr},
    {score_tile<1, T>, value_tile<1, T>},
    {score_tile<2, T>, value_tile<2, T>},
    {score_tile<3, T>, value_tile<3, T>},
    {score_tile<4, T>, value_tile<4, T>},
    {score_tile<5, T>, value_tile<5, T>},
    {score_tile<6, T>, value_tile<6, T>},
#if PELLUCID_ISA_ID == PELLUCID_IS_avx512
    {score_tile<7, T>, value_tile<7, T>},
    {score_tile<8, T>, value_tile<8, T>},
    {score_tile<9, T>, value_tile<9, T>},
    {score_tile<10, T>, value_tile<10, T>},
    {score_tile<11, T>, value_tile<11, T>},
    {score_tile<12, T>, value_tile<12, T>},
#endif
};
static_assert(sizeof(kTiles<float>) / sizeof(kTiles<float>[0]) == kTallest + 1);

// Scores of keys [begin, end) of a tile after the model's own wishes. In units of log2 e, as all
// scores here: the queries, the cap and the slopes were multiplied by it.
PELLUCID_INLINE void adjust(float* scores, int begin, int end, float softcap, float slope,
                            int64_t offset) {
  for (int k = begin; k < end; k += 16) {
    F32x16 s = load(scores + k);
    if (softcap > 0.0f) s = splat(softcap) * tanh(s / splat(softcap));
    if (slope != 0.0f) {
      float distance[16];
      for (int j = 0; j < 16; ++j) distance[j] = static_cast<float>(offset + k + j);
      s = fma(splat(slope), load(distance), s);
    }
    store(scores + k, s);
  }
}

// Keys [begin, end) of a block that a query sees.
struct Visible {
  int begin, end;
  bool all(int k) const { return begin <= k && k + 16 <= end; }
  Mask mask(int k) const {
    const auto lane = [&](int key) { return key < k ? 0 : key > k + 16 ? 16 : key - k; };
    return lanes(lane(begin), lane(end));
  }
};

PELLUCID_INLINE float largest_score(const float* scores, Visible seen, int begin, int end) {
  F32x16 largest = splat(kNothing);
  for (int k = begin; k < end; k += 16) {
    F32x16 s = load(scores + k);
    if (!seen.all(k)) s = select(seen.mask(k), s, splat(kNothing));
    largest = max(largest, s);
  }
  return max_lane(largest);
}

// Scores turned into weights 2^(score - m), in place; their sum.
PELLUCID_INLINE float weigh(float* scores, Visible seen, int begin, int end, float m) {
  F32x16 total = zero();
  for (int k = begin; k < end; k += 16) {
    F32x16 weight = exp2_down(load(scores + k) - splat(m));
    if (!seen.all(k)) weight = select(seen.mask(k), weight, zero());
    store(scores + k, weight);
    total = total + weight;
  }
  return sum(total);
}

// Sixteen queries side by side, since their factors are one chain of dependent operations.
void merge(float* states, const float* block_states, int n_queries, int64_t padded_dim) {
  const int64_t stride = 16 + padded_dim;
  for (int first = 0; first < n_queries; first += 16) {
    const int count = n_queries - first < 16 ? n_queries - first : 16;
    float m_old[16] = {}, m_block[16] = {}, l_old[16] = {}, l_block[16] = {};
    for (int i = 0; i < count; ++i) {
      const int64_t at = (first + i) * stride;
      m_old[i] = states[at];
      l_old[i] = states[at + 1];
      m_block[i] = block_states[at];
      l_block[i] = block_states[at + 1];
    }
    const F32x16 m = max(load(m_old), load(m_block));
    // One of the two is 2^0, exactly 1.
    const F32x16 keep_all = exp2_down(load(m_old) - m), take_all = exp2_down(load(m_block) - m);
    float keep[16], take[16];
    store(keep, keep_all);
    store(take, take_all);
    store(l_old, fma(load(l_old), keep_all, load(l_block) * take_all));
    store(m_old, m);
    for (int i = 0; i < count; ++i) {
      if (m_block[i] == kNothing) continue;
      float* state = states + (first + i) * stride;
      const float* block = block_states + (first + i) * stride;
      state[0] = m_old[i];
      state[1] = l_old[i];
      for (int64_t d = 16; d < stride; d += 16)
        store(state + d, fma(load(state + d), splat(keep[i]), load(block + d) * splat(take[i])));
    }
  }
}

void finish(const float* state, int64_t head_dim, float* y) {
  const F32x16 factor = splat(1.0f / state[1]);
  int64_t i = 0;
  for (; i + 16 <= head_dim; i += 16) store(y + i, load(state + 16 + i) * factor);
  if (i < head_dim) store(y + i, load(state + 16 + i) * factor, static_cast<int>(head_dim - i));
}

// Up to kTallest queries with what a block needs of each.
struct Tile {
  int count;
  int64_t first_query;
  const float* q;  // [head_dim][count]
  float* scores;   // [count][kKeyBlock]
  float* states;   // [count][16 + padded_dim]
};

// One past the last key of the block at `base` that a query of the tile sees; may be below 1.
PELLUCID_INLINE int64_t last_key(const AttentionItem& item, const Tile& tile, int64_t base) {
  const int64_t end = item.start + (tile.first_query + tile.count - 1) / item.group + 1 - base;
  return end < kKeyBlock ? end : kKeyBlock;
}

// Weights of the block's keys in `tile.scores`, and m and l of its queries.
template <class T>
PELLUCID_INLINE void weigh_tile(const AttentionItem& item, const Tile& tile, const Block<T>& block,
                                int64_t base, float* m, float* l) {
  Block<T> seen = block;
  const int end = static_cast<int>((last_key(item, tile, base) + 15) / 16);
  if (end < seen.end) seen.end = end;
  kTiles<T>[tile.count].score(tile.q, seen, item.head_dim, tile.scores);
  const int k_begin = seen.begin * 16, k_end = seen.end * 16;
  Visible visible[kTallest];
  for (int i = 0; i < tile.count; ++i) {
    const int64_t query = tile.first_query + i, position = item.start + query / item.group;
    const int64_t begin = item.window > 0 ? position + 1 - item.window - base : 0;
    const int64_t end_key = position + 1 - base;
    visible[i].begin = begin < 0 ? 0 : begin > kKeyBlock ? static_cast<int>(kKeyBlock) : static_cast<int>(begin);
    visible[i].end = end_key > kKeyBlock ? static_cast<int>(kKeyBlock) : static_cast<int>(end_key);
    float* scores = tile.scores + i * kKeyBlock;
    if (item.softcap > 0.0f || item.slopes != nullptr)
      adjust(scores, k_begin, k_end, item.softcap * kLog2E,
             item.slopes == nullptr ? 0.0f : item.slopes[query % item.group] * kLog2E,
             base - position);
    m[i] = largest_score(scores, visible[i], k_begin, k_end);
  }
  for (int i = 0; i < tile.count; ++i) {
    float* scores = tile.scores + i * kKeyBlock;
    // Nothing is seen: any m will do for weights that are all 0.
    const float base_score = visible[i].begin < visible[i].end ? m[i] : 0.0f;
    l[i] = weigh(scores, visible[i], k_begin, k_end, base_score);
  }
}

// The block's values by those weights, merged into the tile's states. `results`: as the states.
template <class T>
PELLUCID_INLINE void add_values(const AttentionItem& item, const Tile& tile, const Block<T>& block,
                                Ahead<T> ahead, int64_t base, const float* m, const float* l,
                                float* results) {
  const int64_t padded_dim = item.layer->padded_dim, stride = 16 + padded_dim;
  kTiles<T>[tile.count].value(tile.scores, block, ahead, static_cast<int>(last_key(item, tile, base)),
                              padded_dim, results + 16, stride);
  for (int i = 0; i < tile.count; ++i) {
    results[i * stride] = m[i];
    results[i * stride + 1] = l[i];
  }
  merge(tile.states, results, tile.count, padded_dim);
}

// The block's sub-blocks from the pages.
template <class T>
PELLUCID_INLINE Block<T> find_block(const AttentionItem& item, int64_t block_index) {
  const KvLayer& layer = *item.layer;
  const int64_t base = block_index * kKeyBlock;
  const int64_t first_row = item.first_query / item.group;
  const int64_t last_row = (item.first_query + item.n_queries - 1) / item.group;
  const int64_t end = item.start + last_row + 1 - base;
  const int64_t begin = item.window > 0 ? item.start + first_row + 1 - item.window - base : 0;
  Block<T> block = {};
  block.begin = begin <= 0 ? 0 : static_cast<int>(begin / kSubBlock);
  block.end = end >= kKeyBlock ? kSubBlocks : static_cast<int>((end + kSubBlock - 1) / kSubBlock);
  const T* data = reinterpret_cast<const T*>(layer.data) + item.kv_head * layer.head_stride;
  for (int s = block.begin; s < block.end; ++s) {
    const int64_t position = base + s * kSubBlock;
    const T* page = data + item.pages[position / item.page_size] * layer.page_stride;
    const int64_t sub = position % item.page_size / kSubBlock;
    block.keys[s] = page + sub * layer.key_stride;
    block.values[s] = page + layer.values_at + sub * layer.value_stride;
  }
  return block;
}

// The same block in f32, which is exact, for items whose many tiles would each convert it.
PELLUCID_INLINE Block<float> widen(const Block<Half>& block, const KvLayer& layer, float* space) {
  Block<float> wide = {};
  wide.begin = block.begin;
  wide.end = block.end;
  for (int s = block.begin; s < block.end; ++s) {
    wide.keys[s] = space;
    for (int64_t i = 0; i < layer.key_stride; i += 16) store(space + i, load(block.keys[s] + i));
    space += layer.key_stride;
    wide.values[s] = space;
    for (int64_t i = 0; i < layer.value_stride; i += 16)
      store(space + i, load(block.values[s] + i));
    space += layer.value_stride;
  }
  return wide;
}

// Queries side by side for each feature, [head_dim][count], times the scale and log2 e, so that a
// weight is a power of two.
PELLUCID_INLINE void gather(const AttentionItem& item, int64_t first_query, int count, float* q) {
  const float scale = item.scale * kLog2E;
  for (int i = 0; i < count; ++i) {
    const int64_t query = first_query + i;
    const float* row =
        item.q + query / item.group * item.q_stride + query % item.group * item.head_dim;
    for (int64_t d = 0; d < item.head_dim; ++d) q[d * count + i] = row[d] * scale;
  }
}

PELLUCID_INLINE void begin_states(float* states, int64_t n_queries, int64_t stride) {
  for (int64_t i = 0; i < n_queries * stride; i += 16) store(states + i, zero());
  for (int64_t i = 0; i < n_queries; ++i) states[i * stride] = kNothing;
}

// All tiles take the block's keys before any takes its values: one of the two at a time stays in the
// nearest cache.
template <class T>
PELLUCID_INLINE void attend_block(const AttentionItem& item, const Tile* tiles, int n_tiles,
                                  const Block<T>& block, Ahead<T> ahead, int64_t base,
                                  float* results) {
  float m[kItemQueries], l[kItemQueries];
  for (int t = 0; t < n_tiles; ++t)
    if (last_key(item, tiles[t], base) > block.begin * kSubBlock)
      weigh_tile(item, tiles[t], block, base, m + t * kTallest, l + t * kTallest);
  for (int t = 0; t < n_tiles; ++t)
    if (last_key(item, tiles[t], base) > block.begin * kSubBlock)
      add_values(item, tiles[t], block, ahead, base, m + t * kTallest, l + t * kTallest, results);
}

void attend(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states,
            int64_t states_step, float* scratch) {
  const KvLayer& layer = *item.layer;
  const int64_t stride = 16 + layer.padded_dim;
  float* queries = scratch;  // [kItemQueries * head_dim], begun on a line
  float* scores = queries + kItemQueries * layer.padded_dim;
  float* results = scores + kItemQueries * kKeyBlock;
  float* wide = results + kTallest * stride;
  Tile tiles[kItemQueries];
  int n_tiles = 0;
  for (int64_t i = 0; i < item.n_queries; i += kTallest) {
    const int64_t left = item.n_queries - i;
    const int count = left < kTallest ? static_cast<int>(left) : kTallest;
    gather(item, item.first_query + i, count, queries + i * item.head_dim);
    tiles[n_tiles++] = {count, item.first_query + i, queries + i * item.head_dim,
                        scores + i * kKeyBlock, states + i * stride};
  }
  const auto each_block = [&]<class T>(const T*) {
    Block<T> block = find_block<T>(item, first_block);
    for (int64_t b = first_block; b < end_block; ++b) {
      if (b == first_block || states_step != 0) begin_states(states, item.n_queries, stride);
      const Block<T> next = b + 1 < end_block ? find_block<T>(item, b + 1) : block;
      if (sizeof(T) == sizeof(float) || n_tiles == 1) {
        attend_block(item, tiles, n_tiles, block, next.keys, b * kKeyBlock, results);
      } else if constexpr (sizeof(T) < sizeof(float)) {
        const Block<float> whole = widen(block, layer, wide);
        attend_block(item, tiles, n_tiles, whole, whole.keys, b * kKeyBlock, results);
      }
      block = next;
      states += states_step;
      for (int t = 0; t < n_tiles; ++t) tiles[t].states += states_step;
    }
  };
  if (item.kv_type == KvType::f32)
    each_block(static_cast<const float*>(nullptr));
  else
    each_block(static_cast<const Half*>(nullptr));
}

template <class T>
PELLUCID_INLINE void store_value(T* to, const float* v, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 x = i + 16 <= n ? load(v + i) : load(v + i, static_cast<int>(n - i));
    if constexpr (sizeof(T) == 2) x = max(splat(-kHalfMax), min(splat(kHalfMax), x));
    store(to + i, x);
  }
}

template <class T>
PELLUCID_INLINE void store_head(const float* k, const float* v, const KvLayer& layer,
                                int64_t kv_head, int64_t page, int64_t slot) {
  T* head =
      reinterpret_cast<T*>(layer.data) + page * layer.page_stride + kv_head * layer.head_stride;
  const int64_t sub = slot / kSubBlock, lane = slot % kSubBlock;
  T* keys = head + sub * layer.key_stride + lane;
  for (int64_t d = 0; d < layer.head_dim; d += 16) {
    T part[16];
    const int64_t count = layer.head_dim - d < 16 ? layer.head_dim - d : 16;
    store_value(part, k + d, count);
    for (int64_t i = 0; i < count; ++i) keys[(d + i) * kSubBlock] = part[i];
  }
  T* value = head + layer.values_at + sub * layer.value_stride + lane * layer.padded_dim;
  store_value(value, v, layer.head_dim);
}

void store_kv(const float* k, const float* v, const KvLayer& layer, KvType type, int64_t kv_head,
              int64_t page, int64_t slot) {
  if (type == KvType::f16)
    store_head<Half>(k, v, layer, kv_head, page, slot);
  else
    store_head<float>(k, v, layer, kv_head, page, slot);
}

constexpr AttentionKernels kAttentionKernels = {attend, merge, finish, store_kv};

}  // namespace pellucid::PELLUCID_ISA
