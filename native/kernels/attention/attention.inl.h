// The kernels of attention.h over F32x16; attention_<isa>.cpp compiles them for one instruction set.
#pragma once

#include "kernels/attention/values.inl.h"

namespace pellucid::PELLUCID_ISA {

constexpr float kNothing = -__builtin_inff();

// Indexed by the number of queries; one function out of line for each (gcc spills when all heights
// are inlined into one driver).
struct TileKernels {
  void (*score[kTallest + 1])(const float* q, const Block&, int64_t dim, float* scores);
  void (*value[kTallest + 1])(const float* weights, const Block&, Ahead, const ValueRange&,
                              float* sums, int64_t sums_stride);
};

template <KvType kType>
constexpr TileKernels tile_kernels() {
  return {{nullptr, score_tile<1, kType>, score_tile<2, kType>, score_tile<3, kType>,
           score_tile<4, kType>, score_tile<5, kType>, score_tile<6, kType>,
#if PELLUCID_IN_512_BITS
           score_tile<7, kType>, score_tile<8, kType>, score_tile<9, kType>, score_tile<10, kType>,
           score_tile<11, kType>, score_tile<12, kType>
#endif
          },
          {nullptr, value_tile<1, kType>, value_tile<2, kType>, value_tile<3, kType>,
           value_tile<4, kType>, value_tile<5, kType>, value_tile<6, kType>,
#if PELLUCID_IN_512_BITS
           value_tile<7, kType>, value_tile<8, kType>, value_tile<9, kType>, value_tile<10, kType>,
           value_tile<11, kType>, value_tile<12, kType>
#endif
          }};
}

// In the order of KvType.
constexpr TileKernels kTiles[] = {tile_kernels<KvType::f16>(), tile_kernels<KvType::f32>(),
                                  tile_kernels<KvType::int8>(), tile_kernels<KvType::int4>()};

PELLUCID_INLINE const TileKernels& tiles_of(KvType type) { return kTiles[static_cast<int>(type)]; }

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

void finish(const float* state, const KvLayer& layer, float* y) {
  const F32x16 factor = splat(1.0f / state[1]);
  const auto put = [&](int64_t i, F32x16 sums) {
    const int64_t left = layer.head_dim - i;
    if (left >= 16)
      store(y + i, sums * factor);
    else if (left > 0)
      store(y + i, sums * factor, static_cast<int>(left));
  };
  const float* sums = state + 16;
  if (!layer.values.in_blocks()) {
    for (int64_t i = 0; i < layer.head_dim; i += 16) put(i, load(sums + i));
    return;
  }
  for_each_block(layer.values.dim, [&]<int R>(int64_t begin, F32x16(&x)[R]) {
    load_block(sums, begin, layer.values.dim, x);
    transform(x, kRotateBack);
    for (int r = 0; r < R; ++r) put(begin + 16 * r, x[r]);
  });
}

// Up to kTallest queries with what a block needs of each.
struct Tile {
  int count;
  int64_t first_query;
  float* q;        // as `gather` gives them
  float* scores;   // [count][kKeyBlock]
  float* states;   // [count][state_size]
};

// One past the last key of the block at `base` that a query of the tile sees; may be below 1.
PELLUCID_INLINE int64_t last_key(const AttentionItem& item, const Tile& tile, int64_t base) {
  const int64_t end = item.start + (tile.first_query + tile.count - 1) / item.group + 1 - base;
  return end < kKeyBlock ? end : kKeyBlock;
}

// What the tiles of an item compute with.
struct Work {
  const AttentionItem& item;
  const TileKernels &scores, &values;  // of the types that keys and values have in the block
  float* results;  // as the states
  float* scaled;   // [kTallest][kKeyBlock]
};

// Scores of the sub-blocks of `seen` in `tile.scores`; the first one of all may have an offset of its own.
PELLUCID_INLINE void score_block_of(const Work& work, const Tile& tile, const Block& seen, int64_t base) {
  const AttentionItem& item = work.item;
  const auto score = [&](int begin, int end, const float* offset) {
    if (begin >= end) return;
    Block part = seen;
    part.begin = begin;
    part.end = end;
    if (offset != nullptr) set_bases(item, tile.first_query, tile.count, offset, tile.q);
    work.scores.score[tile.count](tile.q, part, item.layer->keys.dim, tile.scores);
  };
  int begin = seen.begin;
  if (item.first_offset != nullptr && base == 0 && begin == 0 && seen.end > 0) {
    score(0, 1, item.first_offset);
    begin = 1;
  }
  score(begin, seen.end, item.key_offsets == nullptr
                             ? nullptr
                             : item.key_offsets + base / kKeyBlock * item.offsets_stride);
}

// Weights of the block's keys in `tile.scores`, and m and l of its queries.
PELLUCID_INLINE void weigh_tile(const Work& work, const Tile& tile, const Block& block, int64_t base,
                                float* m, float* l) {
  const AttentionItem& item = work.item;
  Block seen = block;
  const int end = static_cast<int>((last_key(item, tile, base) + 15) / 16);
  if (end < seen.end) seen.end = end;
  score_block_of(work, tile, seen, base);
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

// The block's values by those weights, merged into the tile's states.
PELLUCID_INLINE void add_values(const Work& work, const Tile& tile, const Block& block, Ahead ahead,
                                int64_t base, const float* m, const float* l) {
  const KvLayer& layer = *work.item.layer;
  const KvSide& values = layer.values;
  const int64_t stride = state_size(layer);
  const auto value = work.values.value[tile.count];
  float* sums = work.results + 16;
  ValueRange range{static_cast<int>(last_key(work.item, tile, base)), values.dim, 0, values.dim, nullptr};
  if (!values.in_blocks()) value(tile.scores, block, ahead, range, sums, stride);
  const int64_t features = scaled_block(values.type);
  for (int64_t b = 0; values.in_blocks() && b * features < values.dim; ++b) {
    float starts[kTallest];
    if (values.type == KvType::int4)
      scale_weights<KvType::int4>(tile.scores, tile.count, block, b, range.key_end, work.scaled, starts);
    else
      scale_weights<KvType::int8>(tile.scores, tile.count, block, b, range.key_end, work.scaled, starts);
    range.begin = b * features;
    range.end = values.dim - range.begin < features ? values.dim : range.begin + features;
    range.starts = values.type == KvType::int4 ? starts : nullptr;
    value(work.scaled, block, ahead, range, sums, stride);
  }
  for (int i = 0; i < tile.count; ++i) {
    work.results[i * stride] = m[i];
    work.results[i * stride + 1] = l[i];
  }
  merge(tile.states, work.results, tile.count, values.dim);
}

// The block's sub-blocks from the pages.
PELLUCID_INLINE Block find_block(const AttentionItem& item, int64_t block_index) {
  const KvLayer& layer = *item.layer;
  const int64_t base = block_index * kKeyBlock;
  const int64_t first_row = item.first_query / item.group;
  const int64_t last_row = (item.first_query + item.n_queries - 1) / item.group;
  const int64_t end = item.start + last_row + 1 - base;
  const int64_t begin = item.window > 0 ? item.start + first_row + 1 - item.window - base : 0;
  Block block = {};
  block.keys.type = layer.keys.type;
  block.values.type = layer.values.type;
  block.begin = begin <= 0 ? 0 : static_cast<int>(begin / kSubBlock);
  block.end = end >= kKeyBlock ? kSubBlocks : static_cast<int>((end + kSubBlock - 1) / kSubBlock);
  for (int s = block.begin; s < block.end; ++s) {
    const int64_t position = base + s * kSubBlock;
    const std::byte* head = layer.head(item.pages[position / item.page_size], item.kv_head);
    const int64_t sub = position % item.page_size / kSubBlock;
    const auto place = [&](const KvSide& from, Side& to) {
      to.codes[s] = head + from.codes_at + sub * from.codes;
      to.params[s] = reinterpret_cast<const Half*>(head + from.params_at + sub * from.params);
    };
    place(layer.keys, block.keys);
    place(layer.values, block.values);
  }
  return block;
}

// Half-precision keys in f32, which is exact, for items whose many tiles would each convert them.
PELLUCID_INLINE void widen_keys(const Block& block, int64_t dim, Side* wide, float* space) {
  for (int s = block.begin; s < block.end; ++s, space += kSubBlock * dim) {
    wide->codes[s] = reinterpret_cast<const std::byte*>(space);
    const auto* from = reinterpret_cast<const Half*>(block.keys.codes[s]);
    for (int64_t i = 0; i < kSubBlock * dim; i += 16) store(space + i, load(from + i));
  }
}

// The block with keys and values as floats where tiles read them so; parameters stay where they are.
PELLUCID_INLINE Block widen(const Block& block, const KvLayer& layer, float* space) {
  Block wide = block;
  if (layer.keys.type == KvType::f16) widen_keys(block, layer.keys.dim, &wide.keys, space);
  space += kKeyBlock * layer.keys.dim;
  switch (layer.values.type) {
    case KvType::f32: break;
    case KvType::f16: widen_values<KvType::f16>(block, layer.values.dim, &wide.values, space); break;
    case KvType::int8: widen_values<KvType::int8>(block, layer.values.dim, &wide.values, space); break;
    case KvType::int4: widen_values<KvType::int4>(block, layer.values.dim, &wide.values, space); break;
  }
  return wide;
}

PELLUCID_INLINE void begin_states(float* states, int64_t n_queries, int64_t stride) {
  for (int64_t i = 0; i < n_queries * stride; i += 16) store(states + i, zero());
  for (int64_t i = 0; i < n_queries; ++i) states[i * stride] = kNothing;
}

// All tiles take the block's keys before any takes its values: one of the two at a time stays in the
// nearest cache.
PELLUCID_INLINE void attend_block(const Work& work, const Tile* tiles, int n_tiles, const Block& block,
                                  Ahead ahead, int64_t base) {
  float m[kItemQueries], l[kItemQueries];
  for (int t = 0; t < n_tiles; ++t)
    if (last_key(work.item, tiles[t], base) > block.begin * kSubBlock)
      weigh_tile(work, tiles[t], block, base, m + t * kTallest, l + t * kTallest);
  for (int t = 0; t < n_tiles; ++t)
    if (last_key(work.item, tiles[t], base) > block.begin * kSubBlock)
      add_values(work, tiles[t], block, ahead, base, m + t * kTallest, l + t * kTallest);
}

void attend(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states,
            int64_t states_step, float* scratch) {
  const KvLayer& layer = *item.layer;
  const int64_t stride = state_size(layer), query_floats = (layer.keys.dim + 15) / 16 * 16;
  float* queries = scratch;  // begun on a line
  float* scores = queries + kItemQueries * query_floats;
  float* results = scores + kItemQueries * kKeyBlock;
  float* scaled = results + kTallest * stride;
  float* wide = scaled + kTallest * kKeyBlock;
  Tile tiles[kItemQueries];
  int n_tiles = 0;
  for (int64_t i = 0; i < item.n_queries; i += kTallest) {
    const int64_t left = item.n_queries - i;
    const int count = left < kTallest ? static_cast<int>(left) : kTallest;
    float* q = queries + i * layer.keys.dim;
    gather(item, item.first_query + i, count, q);
    tiles[n_tiles++] = {count, item.first_query + i, q, scores + i * kKeyBlock, states + i * stride};
  }
  const bool widened = n_tiles > 1;
  const auto read_as = [&](KvType type, bool floats) { return widened && floats ? KvType::f32 : type; };
  const Work work{item, tiles_of(read_as(layer.keys.type, !layer.keys.in_blocks())),
                  tiles_of(read_as(layer.values.type, true)), results, scaled};
  Block block = find_block(item, first_block);
  for (int64_t b = first_block; b < end_block; ++b) {
    if (b == first_block || states_step != 0) begin_states(states, item.n_queries, stride);
    const Block next = b + 1 < end_block ? find_block(item, b + 1) : block;
    const Block read = widened ? widen(block, layer, wide) : block;
    const Side& ahead = widened ? read.keys : next.keys;
    attend_block(work, tiles, n_tiles, read, ahead.codes, b * kKeyBlock);
    block = next;
    states += states_step;
    for (int t = 0; t < n_tiles; ++t) tiles[t].states += states_step;
  }
}

constexpr AttentionKernels kAttentionKernels = {attend, merge, finish, store_kv, nullptr};

}  // namespace pellucid::PELLUCID_ISA
