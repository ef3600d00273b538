#define PELLUCID_ISA generic
#include <algorithm>

#include "core/bf16.h"
#include "kernels/attention/bf16.inl.h"

namespace pellucid::PELLUCID_ISA {

void round_pairs(F32x16 low, F32x16 high, uint32_t* words) {
  for (int i = 0; i < 16; ++i)
    words[i] = to_bf16(low.lane[i]) | static_cast<uint32_t>(to_bf16(high.lane[i])) << 16;
}

void begin_products(int64_t) {}
void end_products() {}

void multiply(const TileProduct& p) {
  const auto split = [](uint32_t word, uint16_t* places) {
    places[0] = static_cast<uint16_t>(word), places[1] = static_cast<uint16_t>(word >> 16);
  };
  for (int64_t row = 0; row < p.rows; ++row)
    for (int64_t column = 0; column < 16 * p.columns; ++column) {
      float sum = 0.0f;
      for (int64_t b = 0; b < p.blocks; ++b) {
        const uint32_t* a = p.rows_words + row * p.rows_stride + b * kPairs;
        const uint32_t* tile = p.tiles + column / 16 * p.tiles_stride + b * kTileWords + column % 16;
        uint16_t x[32], y[32];
        for (int w = 0; w < kPairs; ++w) split(a[w], x + 2 * w), split(tile[w * 16], y + 2 * w);
        sum = add_bf16_products(x, y, sum);
      }
      p.sums[row * p.sums_stride + column] = sum;
    }
}

}  // namespace pellucid::PELLUCID_ISA

namespace pellucid {

namespace {
int64_t most_features(int64_t head_dim) { return (head_dim + kKvPadding - 1) / kKvPadding * kKvPadding; }
}  // namespace

int64_t most_state(int64_t head_dim) { return 16 + most_features(head_dim); }

int64_t attention_scratch(int64_t head_dim) {
  const int64_t dim = most_features(head_dim);
  const int64_t queries = kItemQueries * (dim + kKeyBlock);
  const int64_t tile = kTileQueries * (most_state(head_dim) + kKeyBlock);
  return std::max(queries + tile + 2 * kKeyBlock * dim, bf16_attention_scratch(dim));
}

constinit const AttentionKernels kAttentionKernelsGeneric = {generic::attend, generic::merge, generic::finish,
                                                             generic::store_kv, generic::attend_bf16};

}  // namespace pellucid
