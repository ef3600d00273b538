#include "machine.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pellucid {

std::vector<CpuFeature> cpu_features() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  return {
      {"avx2", __builtin_cpu_supports("avx2") != 0},
      {"fma", __builtin_cpu_supports("fma") != 0},
      {"f16c", __builtin_cpu_supports("f16c") != 0},
      {"avx512f", __builtin_cpu_supports("avx512f") != 0},
      {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
      {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
      {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
      {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
  };
#elif defined(__aarch64__) && defined(__linux__)
  return {{"neon", true}, {"dotprod", (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0}};
#elif defined(__aarch64__) && defined(__APPLE__)
  return {{"neon", true}, {"dotprod", true}};  // every Arm processor that Apple sells for it
#elif defined(__aarch64__)
  return {{"neon", true}};
#else
  return {};
#endif
}

}  // namespace pellucid
