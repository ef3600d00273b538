// Timing of matrix products from inside, so that Python is not in the figures.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pool.h"
#include "kernels/matmul/matmul.h"

namespace pellucid {

// Seconds of each of `passes` passes over `weights` by all threads of `pool`, who meet after each
// weight, as they do in a step. Several weights of the same shape show what reading them from
// memory costs. out: [rows][ldo], ldo at least every n_out.
std::vector<double> time_products(Pool& pool, const std::vector<const PackedWeight*>& weights,
                                  const Activations& x, float* out, int64_t ldo, int passes);

}  // namespace pellucid
