// Which instruction set the kernels use: considered once, chosen once, for the whole process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pellucid {

// In order of preference, the least first.
enum class Simd {
  generic,  // portable C++, the oracle of all others
  neon,     // Arm, with the dot-product extension
  avx2,     // x86 with AVX2, FMA and F16C
  avx512,   // x86 with AVX-512 F, BW, VL, DQ and VNNI
  amx,      // the same with AMX tiles, which the system must grant; products use them, and attention with bfloat16
};

std::string_view simd_name(Simd simd);

struct SimdChoice {
  Simd simd;
  bool usable;
  std::string why;  // what is missing, or what it rests on
};

// Every instruction set with kernels in the program's source, usable here or not.
const std::vector<SimdChoice>& simd_considered();

// The best usable one; PELLUCID_SIMD=generic|neon|avx2|avx512|amx in the environment of the process
// asks for another. Throws std::invalid_argument when that names none, or one that is not usable.
Simd simd_chosen();

// The instruction set of that name. Throws as `simd_chosen` does; "" is the chosen one.
Simd simd_named(std::string_view name);

}  // namespace pellucid
