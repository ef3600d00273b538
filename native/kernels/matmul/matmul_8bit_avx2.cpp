#include "kernels/matmul/matmul_avx2.inl.h"

namespace pellucid::matmul {
namespace {

constexpr IntList<1, 2, 3, 4, 5, 6, 7, 8> kHeights;

}  // namespace

TypeKernels avx2_6bit() { return block_table<6, Params::k_d>(kHeights); }
TypeKernels avx2_8bit() { return block_table<8, Params::d>(kHeights); }

}  // namespace pellucid::matmul
