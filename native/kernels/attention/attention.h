// Causal attention of the rows of one sequence over its pages.
//
// Invariants
//  1. Keys are taken in blocks of 128 absolute positions. A block's result for one query (row and
//     head) is its largest score m, the sum l of e^(score - m) and the sum of those weights times
//     the values; the blocks are merged in order by the online softmax (Milakov and Gimelshein
//     2018; Dao et al. 2022). Nothing in this depends on the batch, the pages or the threads.
//     Scores are in units of log2 e, so that e^(score - m) is a power of two.
//  2. A score is one chain of fused multiply-adds over the features, or over blocks of them whose
//     products are summed as integers; a value's sum is one chain over the keys. Keys that a query may not see have weight 0, which changes no bit of a sum.
//  3. Query heads that share a kv head, and neighbouring rows, share every load of a key or value.
#pragma once

#include <cstdint>

#include "cache/kv_cache.h"

namespace pellucid {

constexpr int64_t kKeyBlock = 128;  // positions
constexpr int64_t kTileQueries = 12;
constexpr int64_t kItemQueries = 96;  // queries that share one conversion of a block to f32

// Queries [first_query, first_query + n_queries) of one sequence and kv head, numbered row by row:
// query n is head n % group of row n / group.
struct AttentionItem {
  const float* q;     // first row, first of the group's heads
  int64_t q_stride;   // floats between rows
  int64_t group;      // query heads of the kv head
  int64_t head_dim;
  int64_t first_query, n_queries;
  int64_t start;      // position of row 0
  int64_t window;     // visible positions; 0: all
  float scale;
  float softcap;       // 0: none
  const float* slopes; // of the group's heads, or null
  // What keys in blocks were stored less of, for each key block of positions: [head_dim], or null.
  const float* key_offsets;
  int64_t offsets_stride;
  const float* first_offset;  // the same of the first sub-block's positions, or null: as their block's

  const KvLayer* layer;
  int64_t kv_head;
  const int32_t* pages;
  int64_t page_size;
};

// A query's state in floats: m, l, and sums of the values' features.
inline int64_t state_size(const KvLayer& layer) { return 16 + layer.values.dim; }
// The most that a state of heads of `head_dim` takes, and `attend` of scratch, whatever the types.
int64_t most_state(int64_t head_dim);
int64_t attention_scratch(int64_t head_dim);

struct AttentionKernels {
  // Blocks [first_block, end_block) merged in order into `states` [n_queries][state_size], which are
  // begun afresh; with a `states_step`, each block's states by themselves, so many floats apart.
  // n_queries <= kItemQueries.
  void (*attend)(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states,
                 int64_t states_step, float* scratch);
  // One more block's states merged into `states`.
  void (*merge)(float* states, const float* block_states, int n_queries, int64_t values_dim);
  // y[head_dim] = sums / l
  void (*finish)(const float* state, const KvLayer& layer, float* y);
  // Stores one head's key and value at a position's page; keys in blocks less `offset`, if any, keys
  // in int4 with their errors fed on by `feedback` [dim][dim], if any (store.inl.h).
  void (*store)(const float* k, const float* offset, const float* feedback, const float* v,
                const KvLayer& layer, int64_t kv_head, int64_t page, int64_t slot);
  // As `attend`, with factors of bfloat16 (bf16.inl.h): for layers that `can_attend_bf16`. Null where
  // there is none.
  void (*attend_bf16)(const AttentionItem& item, int64_t first_block, int64_t end_block, float* states,
                      int64_t states_step, float* scratch);
};

// Heads of whole blocks of 32, kept in half precision.
inline bool can_attend_bf16(const KvLayer& layer) {
  return layer.head_dim % 32 == 0 && layer.keys.type == KvType::f16 && layer.values.type == KvType::f16;
}

extern const AttentionKernels kAttentionKernelsGeneric;
#if defined(__x86_64__) || defined(_M_X64)
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;
extern const AttentionKernels kAttentionKernelsAmx;
#elif defined(__aarch64__)
extern const AttentionKernels kAttentionKernelsNeon;
#endif

// The blocks that any of the item's queries sees.
struct BlockRange {
  int64_t begin, end;
};
inline BlockRange visible_blocks(const AttentionItem& item) {
  const int64_t first_row = item.first_query / item.group;
  const int64_t last_row = (item.first_query + item.n_queries - 1) / item.group;
  const int64_t lowest = item.window > 0 ? item.start + first_row + 1 - item.window : 0;
  return {lowest > 0 ? lowest / kKeyBlock : 0, (item.start + last_row) / kKeyBlock + 1};
}

}  // namespace pellucid
