#define PELLUCID_ISA avx512
#include "kernels/attention/attention.inl.h"

namespace pellucid {
constinit const AttentionKernels kAttentionKernelsAvx512 = avx512::kAttentionKernels;
}
