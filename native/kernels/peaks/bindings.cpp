#include "kernels/peaks/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/peaks/peaks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 36, kMaxRounds = int64_t{1} << 32;
constexpr int kMaxPasses = 1 << 20;

void check(const char* name, int64_t value, int64_t high) {
  if (value < 1 || value > high)
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) +
                                ", must be from 1 to " + std::to_string(high));
}

std::vector<double> reads(Pool& pool, int64_t bytes, int passes, const std::string& simd) {
  check("bytes", bytes, kMaxBytes);
  check("passes", passes, kMaxPasses);
  const Simd chosen = simd_named(simd);
  nb::gil_scoped_release release;
  return peak_reads(pool, bytes, passes, chosen);
}

template <Arithmetic kind>
std::vector<double> arithmetic(Pool& pool, int64_t rounds, int passes, const std::string& simd) {
  check("rounds", rounds, kMaxRounds);
  check("passes", passes, kMaxPasses);
  const Simd chosen = simd_named(simd);
  nb::gil_scoped_release release;
  return peak_arithmetic(pool, kind, rounds, passes, chosen);
}

}  // namespace

void bind_peaks(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("peaks", "What this machine can do at best.");
  m.def("reads", &reads, "pool"_a, "bytes"_a, "passes"_a, "simd"_a = "",
        "Bytes a second of each pass over a buffer of `bytes` bytes.");
  m.def("int8", &arithmetic<Arithmetic::int8>, "pool"_a, "rounds"_a, "passes"_a, "simd"_a = "",
        "Operations a second of each pass of 8-bit products added up; a product is two.");
  m.def("f32", &arithmetic<Arithmetic::f32>, "pool"_a, "rounds"_a, "passes"_a, "simd"_a = "",
        "Operations a second of each pass of float32 multiply-adds; one is two.");
}

}  // namespace pellucid
