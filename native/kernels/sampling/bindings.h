#pragma once

#include <nanobind/nanobind.h>

namespace pellucid {

// The submodule `sampling`: tokens from rows of scores.
void bind_sampling(nanobind::module_& parent);

}  // namespace pellucid
