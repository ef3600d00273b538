#include "kernels/sampling/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "program/frame.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void within(const char* name, const Vector<int32_t>& ids, size_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || static_cast<size_t>(ids.data()[i]) >= vocabulary)
      throw std::invalid_argument("sampling: " + std::string(name) + " names token " +
                                  std::to_string(ids.data()[i]) + " of a vocabulary of " +
                                  std::to_string(vocabulary));
}

// A row of scores and how to choose from it: row, mask (-1: none), the end of its edits, temperature,
// min_p, top_k, top_p, seed, position.
using Draw = std::tuple<int64_t, int64_t, int64_t, double, double, int64_t, double, uint64_t, uint64_t>;

std::string among(const char* name, int64_t value, size_t count) {
  return "sampling: " + std::string(name) + " " + std::to_string(value) + " of " + std::to_string(count);
}

void check_draws(const std::vector<Draw>& draws, size_t rows, size_t masks, size_t edits) {
  int64_t begin = 0;
  for (const Draw& draw : draws) {
    const auto [row, mask, end] = std::tie(std::get<0>(draw), std::get<1>(draw), std::get<2>(draw));
    if (row < 0 || static_cast<size_t>(row) >= rows)
      throw std::invalid_argument(among("row", row, rows));
    if (mask < -1 || mask >= static_cast<int64_t>(masks))
      throw std::invalid_argument(among("mask", mask, masks));
    if (end < begin || end > static_cast<int64_t>(edits))
      throw std::invalid_argument("sampling: the ends of edits are not ascending within edited");
    begin = end;
  }
}

std::vector<int32_t> choose(const Logits& logits, const std::vector<Draw>& draws,
                            const Vector<int32_t>& banned, const Masks& masks,
                            const Vector<int32_t>& edited, const Vector<double>& edited_scores) {
  const size_t vocabulary = logits.shape(1);
  within("banned", banned, vocabulary);
  within("edited", edited, vocabulary);
  if (edited.size() != edited_scores.size())
    throw std::invalid_argument("sampling: edited and edited_scores differ in length");
  if (masks.shape(0) > 0 && masks.shape(1) != (vocabulary + 31) / 32)
    throw std::invalid_argument("sampling: masks have " + std::to_string(masks.shape(1)) +
                                " words for a vocabulary of " + std::to_string(vocabulary));
  check_draws(draws, logits.shape(0), masks.shape(0), edited.size());
  std::vector<int32_t> tokens;
  tokens.reserve(draws.size());
  const nb::gil_scoped_release release;
  RowSampler sampler(*kernels_for(simd_chosen()).rows);
  size_t begin = 0;
  for (const auto& [row, mask, end, temperature, min_p, top_k, top_p, seed, position] : draws) {
    const size_t count = static_cast<size_t>(end) - begin;
    SamplingRow given;
    given.logits = {logits.data() + static_cast<size_t>(row) * vocabulary, vocabulary};
    given.banned = {banned.data(), banned.size()};
    if (mask >= 0)
      given.mask = {masks.data() + static_cast<size_t>(mask) * masks.shape(1), masks.shape(1)};
    given.edited = {edited.data() + begin, count};
    given.edited_scores = {edited_scores.data() + begin, count};
    given.temperature = temperature;
    given.min_p = min_p;
    given.top_k = top_k;
    given.top_p = top_p;
    given.seed = seed;
    given.position = position;
    tokens.push_back(sampler.choose(given));
    begin = static_cast<size_t>(end);
  }
  return tokens;
}

}  // namespace

void bind_sampling(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("sampling", "Tokens from rows of scores.");
  m.def("choose", &choose, "logits"_a, "draws"_a, "banned"_a, "masks"_a, "edited"_a, "edited_scores"_a,
        "A token for each of `draws`, -1 where scores make no distribution, -2 where edits and mask "
        "leave none. A draw is (row of logits, row of masks or -1, end of its edits, temperature, min_p, "
        "top_k, top_p, seed, position); its edits begin where those of the draw before end.");
  m.attr("NO_DISTRIBUTION") = kNoDistribution;
  m.attr("NONE_LEFT") = kNoneLeft;
  m.def("uniform", &philox_uniform, "seed"_a, "position"_a);
}

}  // namespace pellucid
