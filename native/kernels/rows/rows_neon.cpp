#define PELLUCID_ISA neon
#include "kernels/rows/rows.inl.h"

namespace pellucid {
constinit const RowKernels kRowKernelsNeon = neon::kRowKernels;
}
