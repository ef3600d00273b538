#include "kernels/matmul/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/matmul/layout.h"
#include "kernels/matmul/measure.h"

namespace nb = nanobind;

namespace pellucid {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const char* kind_name(ActivationKind kind) {
  return kind == ActivationKind::int8 ? "int8" : kind == ActivationKind::bf16 ? "bf16" : "f32";
}

// Quantised rows, in memory that is theirs.
class QuantizedRows {
 public:
  QuantizedRows(const Rows& x, const std::string& simd)
      : rows_(static_cast<int64_t>(x.shape(0))), k_(static_cast<int64_t>(x.shape(1))) {
    if (k_ % kBlock)
      throw std::invalid_argument("activations have k = " + std::to_string(k_) +
                                  ", which is no multiple of " + std::to_string(kBlock));
    const Simd chosen = simd_named(simd);
    blocks_.resize(static_cast<size_t>(rows_ * (k_ / kBlock)));
    for (int64_t r = 0; r < rows_; ++r)
      quantize_row(x.data() + r * k_, k_, blocks_.data() + r * (k_ / kBlock), chosen);
  }
  Activations view() const { return {rows_, k_, nullptr, blocks_.data(), nullptr}; }
  nb::bytes bytes() const { return nb::bytes(blocks_.data(), blocks_.size() * sizeof(ActivationBlock)); }

 private:
  int64_t rows_, k_;
  std::vector<ActivationBlock> blocks_;
};

// Rows of bfloat16, in memory that is theirs.
class Bf16Rows {
 public:
  Bf16Rows(const Rows& x, const std::string& simd)
      : rows_(static_cast<int64_t>(x.shape(0))), k_(static_cast<int64_t>(x.shape(1))) {
    if (k_ % kBlock)
      throw std::invalid_argument("activations have k = " + std::to_string(k_) +
                                  ", which is no multiple of " + std::to_string(kBlock));
    const Simd chosen = simd_named(simd);
    const int64_t bytes = bf16_row_bytes(k_);
    lines_.resize(static_cast<size_t>(rows_ * bytes / 64 + 1));
    for (int64_t r = 0; r < rows_; ++r) round_row_bf16(x.data() + r * k_, k_, data() + r * bytes, chosen);
  }
  Activations view() const { return {rows_, k_, nullptr, nullptr, lines_.front().bytes}; }
  nb::bytes bytes() const { return nb::bytes(lines_.data(), (lines_.size() - 1) * 64); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  uint8_t* data() { return lines_.front().bytes; }
  int64_t rows_, k_;
  std::vector<Line> lines_;
};

// type, raw, n_out, k, mapped, bf16: see RawWeight
using RawTuple = std::tuple<int, Bytes, int64_t, int64_t, bool, bool>;

RawWeight checked(const RawTuple& given) {
  const auto& [number, raw, n_out, k, mapped, bf16] = given;
  const auto type = static_cast<TensorType>(number);
  const auto* layout = matmul::find_layout(type);
  // The byte count, which packing trusts.
  if (layout && n_out > 0 && k > 0 && k % layout->raw_elements == 0) {
    const __int128 need = static_cast<__int128>(n_out) * (k / layout->raw_elements) * layout->raw_bytes;
    if (need != static_cast<__int128>(raw.shape(0)))
      throw std::invalid_argument("raw has " + std::to_string(raw.shape(0)) + " bytes; " +
                                  std::to_string(n_out) + " x " + std::to_string(k) + " values of " +
                                  matmul::type_name(layout->type) + " do not");
  }
  return {type, raw.data(), n_out, k, mapped, bf16};
}

std::vector<std::unique_ptr<PackedWeight>> pack_all(const std::vector<RawTuple>& weights, Pool& pool,
                                                    const std::string& simd, WeightArena* arena) {
  std::vector<RawWeight> from;
  for (const RawTuple& weight : weights) from.push_back(checked(weight));
  const Simd chosen = simd_named(simd);
  WeightArena own(0);  // no larger than the weights
  nb::gil_scoped_release release;
  return pack_weights(from, chosen, arena ? *arena : own, pool);
}

std::vector<std::unique_ptr<PackedWeight>> pack_all_for_floats(const std::vector<RawTuple>& weights,
                                                               Pool& pool, const std::string& simd,
                                                               WeightArena* arena) {
  std::vector<RawWeight> from;
  for (const RawTuple& weight : weights) from.push_back(checked(weight));
  const Simd chosen = simd_named(simd);
  WeightArena own(0);  // no larger than the weights
  nb::gil_scoped_release release;
  return pack_for_floats(from, chosen, arena ? *arena : own, pool);
}

std::unique_ptr<PackedWeight> pack(int type, const Bytes& raw, int64_t n_out, int64_t k,
                                   const std::string& simd, WeightArena* arena, bool bf16) {
  Pool alone(1);
  return std::move(pack_all({{type, raw, n_out, k, false, bf16}}, alone, simd, arena).front());
}

Activations view_of(nb::handle x) {
  QuantizedRows* quantized;
  if (nb::try_cast(x, quantized) && quantized) return quantized->view();
  Bf16Rows* bf16;
  if (nb::try_cast(x, bf16) && bf16) return bf16->view();
  Rows rows;
  if (!nb::try_cast(x, rows, false))
    throw nb::type_error("x is neither QuantizedRows nor Bf16Rows nor a float32 array of rows and k");
  return {static_cast<int64_t>(rows.shape(0)), static_cast<int64_t>(rows.shape(1)), rows.data(), nullptr, nullptr};
}

void multiply(const PackedWeight& weight, nb::handle x, Output out, std::optional<Vector> bias, bool add,
              int64_t group_begin, int64_t group_end) {
  const Activations rows = view_of(x);
  if (static_cast<int64_t>(out.shape(0)) != rows.rows)
    throw std::invalid_argument("out has " + std::to_string(out.shape(0)) + " rows, x has " +
                                std::to_string(rows.rows));
  if (static_cast<int64_t>(out.shape(1)) < weight.n_out)
    throw std::invalid_argument("out has " + std::to_string(out.shape(1)) +
                                " columns, the weight n_out = " + std::to_string(weight.n_out));
  if (bias && static_cast<int64_t>(bias->shape(0)) != weight.n_out)
    throw std::invalid_argument("bias has " + std::to_string(bias->shape(0)) +
                                " values, the weight n_out = " + std::to_string(weight.n_out));
  const int64_t end = group_end < 0 ? weight.n_groups() : group_end;
  nb::gil_scoped_release release;
  weight.multiply(rows, bias ? bias->data() : nullptr, out.data(),
                  static_cast<int64_t>(out.shape(1)), add, group_begin, end);
}

std::vector<double> time_all(const std::vector<const PackedWeight*>& weights, nb::handle x, int threads,
                             int passes) {
  const Activations rows = view_of(x);
  if (passes < 1) throw std::invalid_argument("passes is " + std::to_string(passes));
  const ActivationKind kind = rows.bf16     ? ActivationKind::bf16
                              : rows.blocks ? ActivationKind::int8
                                            : ActivationKind::f32;
  int64_t ldo = 0;
  for (const PackedWeight* weight : weights) {
    if (!weight) throw std::invalid_argument("weights holds None");
    if (weight->k != rows.k) throw std::invalid_argument("weights and x differ in k");
    if (weight->activations != kind)
      throw std::invalid_argument("x is not of the kind that the weights want");
    ldo = std::max(ldo, weight->n_out);
  }
  std::vector<float> out(static_cast<size_t>(rows.rows * ldo));
  nb::gil_scoped_release release;
  Pool pool(threads);
  return time_products(pool, weights, rows, out.data(), ldo, passes);
}

}  // namespace

void bind_matmul(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("matmul", "Packed weights times rows of activations.");
  nb::class_<WeightArena>(m, "Arena", "Memory that weights share, in large pages.").def(nb::init<>());
  nb::class_<QuantizedRows>(m, "QuantizedRows",
                            "float32 [rows, k] as int8 in blocks of 32, a scale for each.")
      .def(nb::init<const Rows&, const std::string&>(), nb::arg("x"), nb::arg("simd") = "")
      .def("bytes", &QuantizedRows::bytes, "The blocks as they lie in memory.");
  nb::class_<Bf16Rows>(m, "Bf16Rows", "float32 [rows, k] as bfloat16.")
      .def(nb::init<const Rows&, const std::string&>(), nb::arg("x"), nb::arg("simd") = "")
      .def("bytes", &Bf16Rows::bytes, "The rows as they lie in memory.");
  nb::class_<PackedWeight>(m, "Weight", "A weight (n_out, k) in the layout that kernels stream.")
      .def_ro("n_out", &PackedWeight::n_out)
      .def_ro("k", &PackedWeight::k)
      .def_ro("group", &PackedWeight::group)
      .def_prop_ro("n_groups", &PackedWeight::n_groups)
      .def_prop_ro("nbytes", &PackedWeight::bytes)
      .def_prop_ro("simd", [](const PackedWeight& w) { return std::string(simd_name(w.simd)); })
      .def_prop_ro("activations", [](const PackedWeight& w) { return kind_name(w.activations); },
                   "What it is multiplied with: int8 (QuantizedRows), bf16 (Bf16Rows) or f32.")
      .def("multiply", &multiply, nb::arg("x"), nb::arg("out"), nb::arg("bias").none() = nb::none(),
           nb::arg("add") = false, nb::arg("group_begin") = 0, nb::arg("group_end") = -1,
           "out[r, o] = sum_k x[r, k] W[o, k] (+ bias[o]) (+ out[r, o]) for the outputs of groups.");
  m.def("pack", &pack, nb::arg("type"), nb::arg("raw"), nb::arg("n_out"), nb::arg("k"),
        nb::arg("simd") = "", nb::arg("arena").none() = nb::none(), nb::arg("bf16") = false,
        "Packs the rows of a tensor of a GGUF type; `raw` is uint8 [bytes].");
  m.def("pack_all", &pack_all, nb::arg("weights"), nb::arg("pool"), nb::arg("simd") = "",
        nb::arg("arena").none() = nb::none(),
        "Packs many, each (type, raw, n_out, k, mapped, bf16), by all threads of the pool. `mapped`: raw "
        "is the mapping of a file, whose pages are given back once they are read. `bf16`: multiplied "
        "as bfloat16 where the type can be.");
  m.def("prefers_bf16", [](int type, const std::string& simd) {
    return prefers_bf16(static_cast<TensorType>(type), simd_named(simd));
  }, nb::arg("type"), nb::arg("simd") = "", "Whether a type has products of bfloat16 on an instruction set.");
  m.def("pack_all_for_floats", &pack_all_for_floats, nb::arg("weights"), nb::arg("pool"),
        nb::arg("simd") = "", nb::arg("arena").none() = nb::none(),
        "As pack_all, for activations in f32.");
  m.def("time_products", &time_all, nb::arg("weights"), nb::arg("x"), nb::arg("threads"),
        nb::arg("passes"), "Seconds of each pass over the weights by a pool of threads.");
  m.def("considered", [] {
    std::vector<std::tuple<std::string, bool, std::string>> all;
    for (const SimdChoice& c : simd_considered()) all.emplace_back(simd_name(c.simd), c.usable, c.why);
    return all;
  }, "(instruction set, usable here, why), the least preferred first.");
  m.def("chosen", [] { return std::string(simd_name(simd_chosen())); });
}

}  // namespace pellucid
