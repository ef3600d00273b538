// Timing of matrix products and of plain reads, from inside, so that Python is not in the figures.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul/matmul.h"

namespace pellucid::matmul {

// Seconds for each of `passes` passes over `weights`, the groups of each split over `threads` threads
// that meet after each weight. out: [rows][max n_out].
std::vector<double> time_products(const std::vector<const PackedWeight*>& weights,
                                  const Activations& x, float* out, int64_t ldo, int threads,
                                  int passes);

// Seconds for each of `passes` plain reads of a buffer of `bytes` bytes by `threads` threads.
std::vector<double> time_reads(int64_t bytes, int threads, int passes);

}  // namespace pellucid::matmul
