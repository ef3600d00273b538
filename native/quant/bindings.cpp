#include "quant/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "quant/search.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid {
namespace {

using Input = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Column = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Steps = std::vector<float>;

void check(const char* name, size_t given, size_t needed) {
  if (given != needed)
    throw std::invalid_argument("quant: " + std::string(name) + " has " + std::to_string(given) + " elements, not " +
                                std::to_string(needed));
}

int64_t blocks(const Input& x, const Input& w, size_t elements) {
  check("a row of x", x.shape(1), elements);
  check("w", w.size(), x.size());
  return static_cast<int64_t>(x.shape(0));
}

void symmetric_blocks(const Input& x, const Input& w, int low, int high, int plain, const Steps& steps,
                      const Column<float>& d, const Table<int8_t>& q, const std::string& isa) {
  const int64_t n = blocks(x, w, 32);
  check("d", d.size(), x.shape(0)), check("q", q.size(), x.size());
  const Simd simd = simd_named(isa);
  const nb::gil_scoped_release release;
  quant::searches(simd).symmetric_blocks(n, x.data(), w.data(), low, high, plain, steps, d.data(), q.data());
}

void affine_blocks(const Input& x, const Input& w, int levels, const Steps& steps, const Column<float>& d,
                   const Column<float>& m, const Table<uint8_t>& q, const std::string& isa) {
  const int64_t n = blocks(x, w, 32);
  check("d", d.size(), x.shape(0)), check("m", m.size(), x.shape(0)), check("q", q.size(), x.size());
  const Simd simd = simd_named(isa);
  const nb::gil_scoped_release release;
  quant::searches(simd).affine_blocks(n, x.data(), w.data(), levels, steps, d.data(), m.data(), q.data());
}

void symmetric_supers(const Input& x, const Input& w, const Steps& steps, const Column<float>& d,
                      const Table<int8_t>& scales, const Table<int8_t>& q, const std::string& isa) {
  const int64_t n = blocks(x, w, 256);
  check("d", d.size(), x.shape(0)), check("scales", scales.size(), 16 * x.shape(0)), check("q", q.size(), x.size());
  const Simd simd = simd_named(isa);
  const nb::gil_scoped_release release;
  quant::searches(simd).symmetric_supers(n, x.data(), w.data(), steps, d.data(), scales.data(), q.data());
}

void affine_supers(const Input& x, const Input& w, int levels, const Steps& steps, const Column<float>& d,
                   const Column<float>& dmin, const Table<uint8_t>& scales, const Table<uint8_t>& minima,
                   const Table<uint8_t>& q, const std::string& isa) {
  const int64_t n = blocks(x, w, 256);
  check("d", d.size(), x.shape(0)), check("dmin", dmin.size(), x.shape(0));
  check("scales", scales.size(), 8 * x.shape(0)), check("minima", minima.size(), 8 * x.shape(0));
  check("q", q.size(), x.size());
  const Simd simd = simd_named(isa);
  const nb::gil_scoped_release release;
  quant::searches(simd).affine_supers(n, x.data(), w.data(), levels, steps, d.data(), dmin.data(), scales.data(), minima.data(),
                       q.data());
}

}  // namespace

void bind_quant(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("quant", "Scales of quantised blocks by least squares.");
  m.def("symmetric_blocks", &symmetric_blocks, "x"_a.noconvert(), "w"_a.noconvert(), "low"_a, "high"_a, "plain"_a,
        "steps"_a, "d"_a.noconvert(), "q"_a.noconvert(), "simd"_a = "",
        "Blocks of 32, x = d * q: fills d, float32 [n], and q, int8 [n, 32].");
  m.def("affine_blocks", &affine_blocks, "x"_a.noconvert(), "w"_a.noconvert(), "levels"_a, "steps"_a,
        "d"_a.noconvert(), "m"_a.noconvert(), "q"_a.noconvert(), "simd"_a = "",
        "Blocks of 32, x = d * q + m: fills d and m, float32 [n], and q, uint8 [n, 32].");
  m.def("symmetric_supers", &symmetric_supers, "x"_a.noconvert(), "w"_a.noconvert(), "steps"_a, "d"_a.noconvert(),
        "scales"_a.noconvert(), "q"_a.noconvert(), "simd"_a = "",
        "Super-blocks of 16 groups of 16, x = d * scales * q: fills d, float32 [n], scales, int8 [n, 16], "
        "and q, int8 [n, 256].");
  m.def("affine_supers", &affine_supers, "x"_a.noconvert(), "w"_a.noconvert(), "levels"_a, "steps"_a,
        "d"_a.noconvert(), "dmin"_a.noconvert(), "scales"_a.noconvert(), "minima"_a.noconvert(), "q"_a.noconvert(), "simd"_a = "",
        "Super-blocks of 8 groups of 32, x = d * scales * q - dmin * minima: fills d and dmin, float32 [n], "
        "scales and minima, uint8 [n, 8], and q, uint8 [n, 256].");
}

}  // namespace pellucid
