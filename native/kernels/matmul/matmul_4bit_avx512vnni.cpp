#include "kernels/matmul/matmul_avx512vnni.inl.h"

namespace pellucid::matmul {

TypeKernels avx512_4bit(Params params) {
  // Two sums a row and what a block needs fit 32 registers; over 8 rows it gains 3 to 5 percent where
  // codes are taken apart, and loses where they are not.
  constexpr IntList<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12> heights;
  if (params == Params::d) return block_table<4, Params::d>(heights);
  if (params == Params::d_m) return block_table<4, Params::d_m>(heights);
  return block_table<4, Params::k_d_m>(heights);
}

}  // namespace pellucid::matmul
