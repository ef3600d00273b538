#define PELLUCID_ISA generic
#include "kernels/attention/attention.inl.h"

namespace pellucid {

int64_t attention_scratch(const KvLayer& layer) {
  const int64_t block = kKeyBlock / kSubBlock * (layer.key_stride + layer.value_stride);
  const int64_t queries = kItemQueries * (layer.padded_dim + kKeyBlock);
  return queries + kTileQueries * state_size(layer) + block;
}

constinit const AttentionKernels kAttentionKernelsGeneric = generic::kAttentionKernels;
}  // namespace pellucid
