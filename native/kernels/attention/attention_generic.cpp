#define PELLUCID_ISA generic
#include "kernels/attention/attention.inl.h"

namespace pellucid {

int64_t attention_scratch(const KvLayer& layer) {
  const int64_t block = kKeyBlock / kSubBlock * (layer.key_stride + layer.value_stride);
  const int64_t tile = kTileQueries * (kKeyBlock + state_size(layer));
  return kItemQueries * layer.head_dim + block + tile;
}

constinit const AttentionKernels kAttentionKernelsGeneric = generic::kAttentionKernels;
}  // namespace pellucid
