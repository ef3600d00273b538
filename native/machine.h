// What this processor can do, asked once at run time.
#pragma once

#include <string>
#include <vector>

namespace pellucid {

struct CpuFeature {
  std::string name;
  bool present;
};

// Instruction-set extensions that the kernels choose by, in a fixed order, and whether this
// processor (and its operating system) offers each.
std::vector<CpuFeature> cpu_features();

}  // namespace pellucid
