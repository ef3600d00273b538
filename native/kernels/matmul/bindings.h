#pragma once

#include <nanobind/nanobind.h>

namespace pellucid {

// The submodule `matmul`: packed weights and activations, for tests and measurements.
void bind_matmul(nanobind::module_& parent);

}  // namespace pellucid
