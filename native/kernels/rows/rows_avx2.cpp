#define PELLUCID_ISA avx2
#include "kernels/rows/rows.inl.h"

namespace pellucid {
constinit const RowKernels kRowKernelsAvx2 = avx2::kRowKernels;
}
