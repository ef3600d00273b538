// Weights as they are packed.
#pragma once

#include <memory>

#include "kernels/matmul/layout.h"

namespace pellucid::matmul {

class LoadedWeight : public PackedWeight {
 public:
  // Fills groups [begin, end) from the rows at `raw`. Calls for other groups may run at the same time.
  virtual void pack(const uint8_t* raw, int64_t begin, int64_t end) = 0;

 protected:
  // What `multiply` was given. Throws std::invalid_argument naming what does not fit.
  void check(const Activations& x, int64_t ldo, int64_t group_begin, int64_t group_end) const;
};

// A weight of a type that `can_be_bf16`, for products of bfloat16.
std::unique_ptr<LoadedWeight> bf16_weight(const Layout& layout, const RawWeight& from, Simd simd,
                                          WeightArena& arena);

}  // namespace pellucid::matmul
