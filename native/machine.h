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

// Asks the system to let this process, all its threads and the children it forks use the tiles of AMX.
// False where it does not; then they fault.
bool grant_tiles();

}  // namespace pellucid
