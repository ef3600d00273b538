#pragma once

#include <nanobind/nanobind.h>

namespace pellucid {

// `_native.peaks`: what this machine can do at best.
void bind_peaks(nanobind::module_& parent);

}  // namespace pellucid
