#define PELLUCID_ISA generic
#include "kernels/rows/rows.inl.h"

namespace pellucid {
constinit const RowKernels kRowKernelsGeneric = generic::kRowKernels;
}
