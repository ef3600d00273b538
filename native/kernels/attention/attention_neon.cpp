#define PELLUCID_ISA neon
#include "kernels/attention/attention.inl.h"

namespace pellucid {
constinit const AttentionKernels kAttentionKernelsNeon = neon::kAttentionKernels;
}
