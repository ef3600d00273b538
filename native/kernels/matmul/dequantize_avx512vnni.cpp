#define PELLUCID_ISA avx512
#include "kernels/matmul/dequantize.inl.h"

namespace pellucid::matmul {
constinit const DequantizeGroup kDequantizeAvx512 = avx512::dequantize_group;
}
