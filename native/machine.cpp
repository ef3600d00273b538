#include "machine.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace pellucid {
namespace {

#if defined(__x86_64__)
// Bits of CPUID's leaf 7, EDX. Not all compilers know names for them.
constexpr unsigned kAmxBf16 = 1u << 22, kAvx512Fp16 = 1u << 23, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;

// A bit of the processor's, if the system keeps tiles across switches of threads.
bool has_tiles(unsigned bit) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bit);
}
#endif

}  // namespace

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
      {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
      {"avx512fp16", has_tiles(kAvx512Fp16)},
      {"amx_tile", has_tiles(kAmxTile)},
      {"amx_bf16", has_tiles(kAmxBf16)},
      {"amx_int8", has_tiles(kAmxInt8)},
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

bool grant_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace pellucid
