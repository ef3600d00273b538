#define PELLUCID_ISA avx512
#include "kernels/rows/rows.inl.h"

namespace pellucid {
constinit const RowKernels kRowKernelsAvx512 = avx512::kRowKernels;
}
