#include "kernels/matmul/matmul_avx2.inl.h"

namespace pellucid::matmul {

TypeKernels avx2_4bit(Params params) {
  constexpr IntList<1, 2, 3, 4, 5, 6, 7, 8> heights;
  if (params == Params::d) return block_table<4, Params::d>(heights);
  if (params == Params::d_m) return block_table<4, Params::d_m>(heights);
  return block_table<4, Params::k_d_m>(heights);
}

}  // namespace pellucid::matmul
