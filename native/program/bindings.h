#pragma once

#include <nanobind/nanobind.h>

namespace pellucid {

// The submodule `program`: pool, cache, embedding tables and programs.
void bind_program(nanobind::module_& parent);

}  // namespace pellucid
