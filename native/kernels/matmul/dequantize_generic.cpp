#define PELLUCID_ISA generic
#include "kernels/matmul/dequantize.inl.h"

namespace pellucid::matmul {
constinit const DequantizeGroup kDequantizeGeneric = generic::dequantize_group;
}
