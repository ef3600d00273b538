// From a file's rows of blocks to the layout that kernels stream.
#pragma once

#include "kernels/matmul/layout.h"

namespace pellucid::matmul {

// Packs outputs [16 * g, 16 * g + 16) of `raw`, n_out rows of k values, into `group`
// (layout.group_bytes(k) bytes). What no output fills is zero.
void pack_group(const Layout& layout, const uint8_t* raw, int64_t n_out, int64_t k, int64_t g,
                uint8_t* group);

}  // namespace pellucid::matmul
