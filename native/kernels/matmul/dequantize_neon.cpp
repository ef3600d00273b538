#define PELLUCID_ISA neon
#include "kernels/matmul/dequantize.inl.h"

namespace pellucid::matmul {
constinit const DequantizeGroup kDequantizeNeon = neon::dequantize_group;
}
