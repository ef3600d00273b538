#define PELLUCID_ISA avx2
#include "kernels/attention/attention.inl.h"

namespace pellucid {
constinit const AttentionKernels kAttentionKernelsAvx2 = avx2::kAttentionKernels;
}
