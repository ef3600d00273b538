#define PELLUCID_ISA generic
#include "kernels/attention/attention.inl.h"

namespace pellucid {

namespace {
int64_t most_features(int64_t head_dim) { return (head_dim + kKvPadding - 1) / kKvPadding * kKvPadding; }
}  // namespace

int64_t most_state(int64_t head_dim) { return 16 + most_features(head_dim); }

int64_t attention_scratch(int64_t head_dim) {
  const int64_t dim = most_features(head_dim);
  const int64_t queries = kItemQueries * (dim + kKeyBlock);
  const int64_t tile = kTileQueries * (most_state(head_dim) + kKeyBlock);
  return queries + tile + 2 * kKeyBlock * dim;
}

constinit const AttentionKernels kAttentionKernelsGeneric = generic::kAttentionKernels;
}  // namespace pellucid
