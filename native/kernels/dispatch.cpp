#include "kernels/dispatch.h"

#include <cstdlib>
#include <stdexcept>

#include "machine.h"

namespace pellucid {
namespace {

// What the kernels of `simd` ask of the processor, by the names of `cpu_features`.
std::vector<std::string> needs(Simd simd) {
  switch (simd) {
    case Simd::generic: return {};
    case Simd::neon: return {"neon", "dotprod"};
    case Simd::avx2: return {"avx2", "fma", "f16c"};
    case Simd::avx512:
      return {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx2", "fma", "f16c"};
    case Simd::amx: {
      std::vector<std::string> all = {"amx_tile", "amx_int8", "amx_bf16", "avx512fp16", "avx512bf16"};
      for (const std::string& need : needs(Simd::avx512)) all.push_back(need);
      return all;
    }
  }
  return {};
}

bool offers(const std::vector<CpuFeature>& features, const std::string& name) {
  for (const CpuFeature& feature : features)
    if (feature.name == name) return feature.present;
  return false;
}

SimdChoice consider(Simd simd, const std::vector<CpuFeature>& features) {
  std::string missing, all;
  for (const std::string& need : needs(simd)) {
    all += (all.empty() ? "" : " ") + need;
    if (!offers(features, need)) missing += (missing.empty() ? "" : " ") + need;
  }
  if (!missing.empty()) return {simd, false, "this processor lacks " + missing};
  if (simd == Simd::amx && !grant_tiles())
    return {simd, false, "the system lacks or withholds permission to use the processor's tiles"};
  return {simd, true, all.empty() ? "runs anywhere" : "this processor has " + all};
}

constexpr Simd kAll[] = {Simd::generic, Simd::neon, Simd::avx2, Simd::avx512, Simd::amx};

Simd best() {
  Simd chosen = Simd::generic;
  for (const SimdChoice& choice : simd_considered())
    if (choice.usable) chosen = choice.simd;
  return chosen;
}

}  // namespace

std::string_view simd_name(Simd simd) {
  switch (simd) {
    case Simd::generic: return "generic";
    case Simd::neon: return "neon";
    case Simd::avx2: return "avx2";
    case Simd::avx512: return "avx512";
    case Simd::amx: return "amx";
  }
  return "?";
}

const std::vector<SimdChoice>& simd_considered() {
  static const std::vector<SimdChoice> considered = [] {
    const std::vector<CpuFeature> features = cpu_features();
    std::vector<SimdChoice> choices;
    for (Simd simd : kAll) choices.push_back(consider(simd, features));
    return choices;
  }();
  return considered;
}

Simd simd_named(std::string_view name) {
  if (name.empty()) return simd_chosen();
  for (const SimdChoice& choice : simd_considered()) {
    if (simd_name(choice.simd) != name) continue;
    if (choice.usable) return choice.simd;
    throw std::invalid_argument("instruction set " + std::string(name) +
                                " cannot be used: " + choice.why);
  }
  throw std::invalid_argument("unknown instruction set \"" + std::string(name) +
                              "\"; choose generic, neon, avx2, avx512 or amx");
}

Simd simd_chosen() {
  static const Simd chosen = [] {
    const char* asked = std::getenv("PELLUCID_SIMD");
    return asked && *asked ? simd_named(asked) : best();
  }();
  return chosen;
}

}  // namespace pellucid
