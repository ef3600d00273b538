#include "program/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "program/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntPairs = nb::ndarray<const int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatTable = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using Either = std::variant<Operand, Quantized>;
using WeightAndBias = std::pair<const PackedWeight*, std::optional<Floats>>;

template <class T>
std::span<const typename T::Scalar> span_of(const T& array) {
  return {array.data(), array.size()};
}

std::vector<float> values(const std::optional<Floats>& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

RowKind kind_of(bool logits) { return logits ? RowKind::logits : RowKind::tokens; }

ProductInput input_of(const Either& x) {
  ProductInput input;
  if (const auto* floats = std::get_if<Operand>(&x)) {
    input.floats = *floats;
  } else {
    input.blocks = std::get<Quantized>(x);
    input.kind = input.blocks.bf16 ? ActivationKind::bf16 : ActivationKind::int8;
  }
  return input;
}

template <class Target>
Target target_of(const Either& y) {
  Target target;
  target.is_quantized = std::holds_alternative<Quantized>(y);
  if (target.is_quantized)
    target.blocks = std::get<Quantized>(y);
  else
    target.floats = std::get<Operand>(y);
  return target;
}

Product product_of(const WeightAndBias& weight) {
  if (weight.first == nullptr) throw std::invalid_argument("linear: no weight");
  return {weight.first, values(weight.second), Operand{}, false, {}};
}

KvType kv_type_named(const std::string& name) {
  if (name == "f16") return KvType::f16;
  if (name == "f32") return KvType::f32;
  if (name == "int8") return KvType::int8;
  if (name == "int4") return KvType::int4;
  throw std::invalid_argument("KV cache: type \"" + name + "\" is unknown; choose f32, f16, int8 or int4");
}

int32_t to_int32(nb::handle value) {
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(value.ptr(), &overflow);
  if (number == -1 && PyErr_Occurred()) throw nb::python_error();
  if (overflow != 0 || number != static_cast<int32_t>(number))
    throw std::invalid_argument("step: a sequence has a number beyond 32 bits");
  return static_cast<int32_t>(number);
}

// Adds the numbers of a list or a tuple; returns how many. `what` is said of anything else.
int32_t append(std::vector<int32_t>& numbers, nb::handle given, const char* what) {
  const nb::object list = nb::steal(PySequence_Fast(given.ptr(), what));
  if (!list.is_valid()) throw nb::python_error();
  const size_t before = numbers.size();
  // An item's __index__ may shorten the list, so its length is asked again for each.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); ++i)
    numbers.push_back(to_int32(nb::borrow<nb::object>(PySequence_Fast_GET_ITEM(list.ptr(), i))));
  return static_cast<int32_t>(numbers.size() - before);
}

// Rows (first row, length, start, pages) as StepArrays has them.
struct SequenceTable {
  std::vector<int32_t> rows, pages;

  explicit SequenceTable(const nb::sequence& sequences) {
    for (const nb::handle sequence : sequences) {
      if (!nb::isinstance<nb::tuple>(sequence) || nb::len(sequence) != 4)
        throw std::invalid_argument("step: a sequence is (first row, length, start, pages)");
      const nb::tuple row = nb::borrow<nb::tuple>(sequence);
      for (size_t i = 0; i < 3; ++i) rows.push_back(to_int32(row[i]));
      rows.push_back(append(pages, row[3], "step: pages"));
    }
  }
};

// The arrays of a plan's spans: (sequence, start, tokens, pages, n_logits) each, a span's rows after
// those of the span before it.
struct PlanTable {
  std::vector<int32_t> tokens, positions, logit_rows, rows, pages;

  explicit PlanTable(const nb::tuple& spans) {
    for (const nb::handle span : spans) add(span);
  }

  StepArrays step() const { return {tokens, positions, logit_rows, rows, pages}; }

 private:
  void add(nb::handle given) {
    if (!nb::isinstance<nb::tuple>(given) || nb::len(given) != 5)
      throw std::invalid_argument("step: a span is (sequence, start, tokens, pages, n_logits)");
    const nb::tuple span = nb::borrow<nb::tuple>(given);
    const int32_t start = to_int32(span[1]), wanted = to_int32(span[4]);
    const auto first = static_cast<int32_t>(tokens.size());
    const int32_t length = append(tokens, span[2], "step: tokens");
    const int32_t n_pages = append(pages, span[3], "step: pages");
    if (start > std::numeric_limits<int32_t>::max() - length)
      throw std::invalid_argument("step: a sequence has a number beyond 32 bits");
    if (wanted < 0 || wanted > length)
      throw std::invalid_argument("step: sequence " + nb::cast<std::string>(nb::str(nb::handle(span[0]))) + ": " +
                                  std::to_string(wanted) + " logits of " + std::to_string(length) +
                                  " rows");
    for (int32_t i = 0; i < length; ++i) positions.push_back(start + i);
    for (int32_t i = length - wanted; i < length; ++i) logit_rows.push_back(first + i);
    rows.insert(rows.end(), {first, length, start, n_pages});
  }
};

Output run_step(Program& program, const KvCache& cache, const StepArrays& step) {
  const size_t rows =
      program.output_kind() == RowKind::tokens ? step.tokens.size() : step.logit_rows.size();
  const auto width = static_cast<size_t>(program.output_width());
  std::unique_ptr<float[]> out(new float[rows * width]);
  {
    nb::gil_scoped_release release;
    program.run(step, cache, {out.get(), rows * width});
  }
  float* data = out.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Output(data, {rows, width}, owner);
}

Output run(Program& program, const KvCache& cache, const Ints& tokens, const Ints& positions,
           const Ints& logit_rows, const nb::sequence& sequences) {
  const SequenceTable table(sequences);
  return run_step(program, cache,
                  {span_of(tokens), span_of(positions), span_of(logit_rows), table.rows, table.pages});
}

Output run_plan(Program& program, const KvCache& cache, const nb::tuple& spans) {
  const PlanTable table(spans);
  return run_step(program, cache, table.step());
}

void bind_values(nb::module_& m) {
  nb::class_<Pool>(m, "Pool", "The threads that run a step; `threads` counts the caller's own.")
      .def(nb::init<int>(), "threads"_a)
      .def_prop_ro("threads", &Pool::threads)
      .def(
          "sum_of_chunks",
          [](Pool& pool, int64_t chunks, int64_t phases) {
            std::vector<int64_t> sums(static_cast<size_t>(pool.threads()), 0);
            {
              nb::gil_scoped_release release;
              pool.run([&](Worker& worker) {
                for (int64_t phase = 0; phase < phases; ++phase)
                  worker.for_each(chunks, [&](int64_t i) {
                    sums[static_cast<size_t>(worker.index())] += i + phase;
                  });
              });
            }
            int64_t total = 0;
            for (int64_t sum : sums) total += sum;
            return total;
          },
          "chunks"_a, "phases"_a = 1,
          "Sum of i + phase over every chunk i < chunks of every phase, for tests.");
  nb::class_<KvCache>(m, "KvCache", "Pages of keys and values, every layer.")
      .def("__init__",
           [](KvCache* self, const std::vector<std::pair<int64_t, int64_t>>& layers,
              int64_t n_pages, int64_t page_size, const std::string& keys,
              const std::string& values) {
             std::vector<KvLayerShape> shapes;
             for (const auto& [heads, dim] : layers) shapes.push_back({heads, dim});
             new (self) KvCache(shapes, n_pages, page_size, {kv_type_named(keys), kv_type_named(values)});
           },
           "layers"_a, "n_pages"_a, "page_size"_a, "keys"_a, "values"_a,
           "layers: (kv heads, head_dim) of each; keys, values: f32, f16, int8 or int4.")
      .def(
          "copy_pages",
          [](KvCache& cache, const IntPairs& pairs) {
            const nb::gil_scoped_release release;
            cache.copy_pages({pairs.data(), pairs.size()});
          },
          "pairs"_a,
          "Every layer's page pairs[i, 0] copied to page pairs[i, 1]. pairs: int32 [n, 2]. Raises "
          "ValueError naming the pair that cannot be, before anything is copied.")
      .def_prop_ro("n_pages", &KvCache::n_pages)
      .def_prop_ro("page_size", &KvCache::page_size)
      .def_prop_ro("nbytes", &KvCache::bytes);
  nb::class_<EmbeddingTable>(m, "EmbeddingTable", "Rows dequantised as they are asked for.")
      .def("__init__",
           [](EmbeddingTable* self, int type, const Bytes& raw, int64_t n_rows, int64_t k) {
             new (self) EmbeddingTable(static_cast<TensorType>(type), raw.data(),
                                       static_cast<int64_t>(raw.size()), n_rows, k);
           },
           "type"_a, "raw"_a, "n_rows"_a, "k"_a, nb::keep_alive<1, 3>());
  nb::class_<Operand>(m, "Columns", "Columns of a float32 value: slot, stride, offset, width.")
      .def(nb::init<int, int64_t, int64_t, int64_t>());
  nb::class_<Quantized>(m, "Blocks", "A quantised value: slot, features, whether of bfloat16.")
      .def(nb::init<int, int64_t, bool>(), "slot"_a, "features"_a, "bf16"_a = false);
  m.def("bf16_row_bytes", &bf16_row_bytes, "features"_a, "Bytes of a row of bfloat16.");
}

}  // namespace

void bind_program(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("program", "Recorded forward passes and what they run on.");
  bind_values(m);
  nb::class_<Program>(m, "Program", "A forward pass as stages, replayed whole for every step.")
      .def(nb::init<std::shared_ptr<Pool>, const std::string&>(), "pool"_a, "simd"_a = "")
      .def("add_slot", [](Program& p, bool logits,
                          int64_t bytes) { return p.add_slot(kind_of(logits), bytes); })
      .def("add_rope_table", &Program::add_rope_table)
      .def("begin_rows",
           [](Program& p, bool logits, const std::vector<int>& own_slots) {
             p.begin_rows(kind_of(logits), own_slots);
           },
           "logits"_a, "own_slots"_a = std::vector<int>{})
      .def(
          "embedding",
          [](Program& p, const EmbeddingTable& table, bool of_positions, const Operand& y) {
            p.embedding(&table, of_positions ? Ids::positions : Ids::tokens, y);
          },
          nb::keep_alive<1, 2>())
      .def("take_rows", &Program::take_rows)
      .def("quantize", &Program::quantize)
      .def("quantize_rest", &Program::quantize_rest)
      .def("rms_norm", [](Program& p, const Operand& x, const Floats& weight, float eps,
                          const Operand& y) { p.rms_norm(x, values(weight), eps, y); })
      .def("layer_norm",
           [](Program& p, const Operand& x, const Floats& weight, std::optional<Floats> bias, float eps,
              const Operand& y) { p.layer_norm(x, values(weight), values(bias), eps, y); },
           "x"_a, "weight"_a, "bias"_a.none(), "eps"_a, "y"_a)
      .def("rope", &Program::rope)
      .def(
          "add_key_offsets",
          [](Program& p, int64_t width, const FloatTable& first, const FloatTable& feedback) {
            return p.add_key_offsets(width, span_of(first), span_of(feedback));
          },
          "width"_a, "first"_a, "feedback"_a)
      .def("store_kv", &Program::store_kv, "k"_a, "v"_a, "layer"_a, "n_kv_heads"_a, "head_dim"_a,
           "offsets"_a.none() = nb::none())
      .def("unary", &Program::unary)
      .def("binary", &Program::binary)
      .def("scalar", &Program::scalar)
      .def("begin_products", [](Program& p, bool logits, const Either& x) {
        p.begin_products(kind_of(logits), input_of(x));
      })
      .def("product",
           [](Program& p, const PackedWeight& weight, std::optional<Floats> bias, const Operand& y,
              bool add, std::optional<Quantized> rest) {
             p.product(&weight, values(bias), y, add, rest);
           },
           "weight"_a, "bias"_a.none(), "y"_a, "add"_a, "rest"_a.none() = nb::none(),
           nb::keep_alive<1, 2>())
      .def("gated",
           [](Program& p, bool logits, const Either& x, const PackedWeight& gate,
              std::optional<Floats> gate_bias, const PackedWeight& up, std::optional<Floats> up_bias,
              const std::string& act, const Either& y) {
             p.gated(kind_of(logits), input_of(x), product_of({&gate, gate_bias}),
                     product_of({&up, up_bias}), act, target_of<GatedStage::Output>(y));
           },
           "logits"_a, "x"_a, "gate"_a, "gate_bias"_a.none(), "up"_a, "up_bias"_a.none(), "act"_a,
           "y"_a, nb::keep_alive<1, 4>(), nb::keep_alive<1, 6>())
      .def("attention",
           [](Program& p, int64_t layer, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
              float scale, float softcap, int64_t window, const Floats& slopes, bool bf16,
              const Operand& q, const Either& y) {
             p.attention({layer, n_heads, n_kv_heads, head_dim, scale, softcap, window, values(slopes), bf16, nullptr},
                         q, target_of<AttentionStage::Output>(y));
           })
      .def("experts",
           [](Program& p, const std::vector<const PackedWeight*>& gate,
              const std::vector<const PackedWeight*>& up, const std::vector<const PackedWeight*>& down,
              int64_t n_used, bool normalize, const Operand& x, const Operand& router_logits,
              const Operand& y) { p.experts({gate, up, down, n_used, normalize}, x, router_logits, y); },
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("set_output", [](Program& p, bool logits, const Operand& y) { p.set_output(kind_of(logits), y); })
      .def("extend_rope_table",
           [](Program& p, int table, const FloatTable& cos, const FloatTable& sin) {
             p.extend_rope_table(table, span_of(cos), span_of(sin));
           })
      .def("rope_positions", &Program::rope_positions)
      .def("extend_key_offsets",
           [](Program& p, int number, const FloatTable& values) {
             p.extend_key_offsets(number, span_of(values));
           })
      .def("key_offset_positions", &Program::key_offset_positions)
      .def("name_stage", &Program::name_stage)
      .def_prop_ro("stage_names", &Program::stage_names)
      .def_prop_ro("stage_seconds", &Program::stage_seconds,
                   "How long each stage of the last step took.")
      .def_prop_ro("n_stages", &Program::n_stages)
      .def_prop_ro("arena_bytes", &Program::arena_bytes)
      .def("run", &run, "cache"_a, "tokens"_a, "positions"_a, "logit_rows"_a, "sequences"_a,
           "One step: float32 [rows, features] of the output. sequences: tuples of first row, "
           "length, start and pages. Raises ValueError naming what does not fit.")
      .def("run_plan", &run_plan, "cache"_a, "spans"_a, "The same of a plan's spans.");
}

}  // namespace pellucid
