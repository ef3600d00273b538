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

// scores[i][key] = q_i . k for the sub-blocks [s, s + NS). q: [head_dim][NQ].
template <int NQ, int NS, class T>
PELLUCID_INLINE void score_columns(const float* q, const T* const* keys, int64_t head_dim,
                                   float* scores) {
  F32x16 sums[NQ][NS];
  for (int i = 0; i < NQ; ++i)
    for (int s = 0; s < NS; ++s) sums[i][s] = zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    F32x16 k[NS];
    for (int s = 0; s < NS; ++s) k[s] = load(keys[s] + d * kSubBlock);
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
    score_columns<NQ, kColumns>(q, block.keys + s, head_dim, scores + s * kSubBlock);
  for (; s < block.end; ++s)
    score_columns<NQ, 1>(q, block.keys + s, head_dim, scores + s * kSubBlock);
}

// sums[i][16 n ...] = sum over keys of weight times value, for ND registers of features.
template <int NQ, int ND, class T>
PELLUCID_INLINE void value_columns(const float* weights, const Block<T>& block, int key_begin,
                                   int key_end, int64_t padded_dim, int64_t column, float* sums,
                                   int64_t sums_stride) {
  F32x16 y[NQ][ND];
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) y[i][n] = zero();
  for (int key = key_begin; key < key_end; ++key) {
    const T* v = block.values[key / kSubBlock] + (key % kSubBlock) * padded_dim + column;
    F32x16 value[ND];
    for (int n = 0; n < ND; ++n) value[n] = load(v + 16 * n);
    for (int i = 0; i < NQ; ++i) {
      const F32x16 weight = splat(weights[i * kKeyBlock + key]);
      for (int n = 0; n < ND; ++n) y[i][n] = fma(weight, value[n], y[i][n]);
    }
  }
  for (int i = 0; i < NQ; ++i)
    for (int n = 0; n < ND; ++n) store(sums + i * sums_stride + column + 16 * n, y[i][n]);
}

template <int NQ, class T>
__attribute__((noinline)) void value_tile(const float* weights, const Block<T>& block,
                                          int key_begin, int key_end, int64_t padded_dim,
                                          float* sums, int64_t sums_stride) {
  constexpr int kColumns = columns_for(NQ) < 4 ? columns_for(NQ) : 4;
  int64_t column = 0;
  for (; column + 16 * kColumns <= padded_dim; column += 16 * kColumns)
    value_columns<NQ, kColumns>(weights, block, key_begin, key_end, padded_dim, column, sums,
                                sums_stride);
  for (; column < padded_dim; column += 16)
    value_columns<NQ, 1>(weights, block, key_begin, key_end, padded_dim, column, sums, sums_stride);
}

template <class T>
struct TileKernels {
  void (*score)(const float*, const Block<T>&, int64_t, float*);
  void (*value)(const float*, const Block<T>&, int, int, int64_t, float*, int64_t);
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

// A query's scores turned into weights, in place. Sees keys [begin, end) of the block; `offset` is
// the block's first position minus the query's own. Writes m and l.
PELLUCID_INLINE void soften(float* scores, int begin, int end, int tile_begin, int tile_end,
                            const AttentionItem& item, float slope, int64_t offset, float* state) {
  F32x16 largest = splat(kNothing);
  for (int i = tile_begin; i < tile_end; i += 16) {
    F32x16 s = load(scores + i) * splat(item.scale);
    if (item.softcap > 0.0f) s = splat(item.softcap) * tanh(s / splat(item.softcap));
    if (item.slopes != nullptr) {
      float distance[16];
      for (int j = 0; j < 16; ++j) distance[j] = static_cast<float>(offset + i + j);
      s = s + splat(slope) * load(distance);
    }
    if (i < begin || i + 16 > end) {
      const auto lane = [&](int key) { return key < i ? 0 : key > i + 16 ? 16 : key - i; };
      s = select(lanes(lane(begin), lane(end)), s, splat(kNothing));
    }
    store(scores + i, s);
    largest = max(largest, s);
  }
  const F32x16 m = splat(max_lane(largest));
  F32x16 total = zero();
  for (int i = tile_begin; i < tile_end; i += 16) {
    const F32x16 weight = exp(load(scores + i) - m);
    store(scores + i, weight);
    total = total + weight;
  }
  state[0] = first(m);
  state[1] = sum(total);
}

void merge(float* state, const float* block_state, int64_t padded_dim) {
  const float m_old = state[0], m_block = block_state[0];
  if (m_block == kNothing) return;
  const float m = m_old > m_block ? m_old : m_block;
  // One of the two is e^0, exactly 1.
  const F32x16 keep = m == m_old ? splat(1.0f) : exp(splat(m_old - m));
  const F32x16 take = m == m_block ? splat(1.0f) : exp(splat(m_block - m));
  state[0] = m;
  state[1] = first(fma(splat(state[1]), keep, splat(block_state[1]) * take));
  for (int64_t i = 16; i < 16 + padded_dim; i += 16)
    store(state + i, fma(load(state + i), keep, load(block_state + i) * take));
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
};

template <class T>
PELLUCID_INLINE void attend_tile(const AttentionItem& item, const Tile& tile, const Block<T>& block,
                                 int64_t base, float* states, float* scratch) {
  const KvLayer& layer = *item.layer;
  const int64_t stride = 16 + layer.padded_dim;
  float* scores = scratch;                                  // [count][kKeyBlock]
  float* results = scratch + kTileQueries * kKeyBlock;      // [count][stride]
  const int last_key = static_cast<int>(
      item.start + (tile.first_query + tile.count - 1) / item.group + 1 - base);
  Block<T> seen = block;
  if (last_key <= 0) return;
  if (last_key < block.end * kSubBlock) seen.end = (last_key + 15) / 16;
  if (seen.begin >= seen.end) return;
  kTiles<T>[tile.count].score(tile.q, seen, item.head_dim, scores);
  for (int i = 0; i < tile.count; ++i) {
    const int64_t query = tile.first_query + i;
    const int64_t position = item.start + query / item.group;
    int64_t begin = item.window > 0 ? position + 1 - item.window - base : 0;
    int64_t end = position + 1 - base;
    begin = begin < 0 ? 0 : begin;
    end = end > kKeyBlock ? kKeyBlock : end;
    float* result = results + i * stride;
    const float slope = item.slopes == nullptr ? 0.0f : item.slopes[query % item.group];
    if (begin >= end) {  // sees nothing of this block
      for (int k = seen.begin * 16; k < seen.end * 16; k += 16)
        store(scores + i * kKeyBlock + k, zero());
      result[0] = kNothing;
      result[1] = 0.0f;
    } else {
      soften(scores + i * kKeyBlock, static_cast<int>(begin), static_cast<int>(end),
             seen.begin * 16, seen.end * 16, item, slope, base - position, result);
    }
  }
  const int key_end = last_key < kKeyBlock ? last_key : static_cast<int>(kKeyBlock);
  kTiles<T>[tile.count].value(scores, seen, seen.begin * 16, key_end, layer.padded_dim,
                              results + 16, stride);
  for (int i = 0; i < tile.count; ++i)
    merge(states + i * stride, results + i * stride, layer.padded_dim);
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
  Block<T> block;
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
  Block<float> wide;
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

// Queries side by side for each feature: [head_dim][count].
PELLUCID_INLINE void gather(const AttentionItem& item, int64_t first_query, int count, float* q) {
  for (int i = 0; i < count; ++i) {
    const int64_t query = first_query + i;
    const float* row =
        item.q + query / item.group * item.q_stride + query % item.group * item.head_dim;
    for (int64_t d = 0; d < item.head_dim; ++d) q[d * count + i] = row[d];
  }
}

void attend(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states,
            float* scratch) {
  const KvLayer& layer = *item.layer;
  const int64_t stride = 16 + layer.padded_dim;
  for (int64_t i = 0; i < item.n_queries; ++i) {
    states[i * stride] = kNothing;
    for (int64_t j = 1; j < stride; ++j) states[i * stride + j] = 0.0f;
  }
  float* queries = scratch;  // [kItemQueries * head_dim]
  float* wide = queries + kItemQueries * item.head_dim;
  float* tile_scratch = wide + kSubBlocks * (layer.key_stride + layer.value_stride);
  Tile tiles[kItemQueries];
  int n_tiles = 0;
  for (int64_t i = 0; i < item.n_queries; i += kTallest) {
    const int64_t left = item.n_queries - i;
    const int count = left < kTallest ? static_cast<int>(left) : kTallest;
    gather(item, item.first_query + i, count, queries + i * item.head_dim);
    tiles[n_tiles++] = {count, item.first_query + i, queries + i * item.head_dim};
  }
  const auto each_tile = [&](const auto& block, int64_t base) {
    for (int t = 0; t < n_tiles; ++t)
      attend_tile(item, tiles[t], block, base, states + t * kTallest * stride, tile_scratch);
  };
  for (int64_t b = first_block; b < end_block; ++b) {
    const int64_t base = b * kKeyBlock;
    if (item.kv_type == KvType::f32)
      each_tile(find_block<float>(item, b), base);
    else if (n_tiles == 1)
      each_tile(find_block<Half>(item, b), base);
    else
      each_tile(widen(find_block<Half>(item, b), layer, wide), base);
  }
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
