#pragma once

#include <nanobind/nanobind.h>

namespace pellucid {

// The submodule `quant`: scales of quantised blocks.
void bind_quant(nanobind::module_& parent);

}  // namespace pellucid
