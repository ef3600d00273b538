#define PELLUCID_ISA avx2
#include "kernels/matmul/dequantize.inl.h"

namespace pellucid::matmul {
constinit const DequantizeGroup kDequantizeAvx2 = avx2::dequantize_group;
}
