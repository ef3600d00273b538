#include "kernels/sampling/bindings.h"

#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>
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
using Tokens = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

void same_length(const char* name, size_t length, size_t rows) {
  if (length != rows)
    throw std::invalid_argument("sampling: " + std::string(name) + " has " + std::to_string(length) +
                                " values for " + std::to_string(rows) + " rows");
}

void within(const char* name, const Vector<int32_t>& ids, size_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || static_cast<size_t>(ids.data()[i]) >= vocabulary)
      throw std::invalid_argument("sampling: " + std::string(name) + " names token " +
                                  std::to_string(ids.data()[i]) + " of a vocabulary of " +
                                  std::to_string(vocabulary));
}

Tokens choose(const Logits& logits, const Vector<int64_t>& rows, const Vector<int32_t>& banned,
              const Masks& masks, const Vector<int64_t>& mask_of, const Vector<int64_t>& edit_ends, const Vector<int32_t>& edited,
              const Vector<double>& edited_scores, const Vector<double>& temperature,
              const Vector<double>& min_p, const Vector<int64_t>& top_k, const Vector<double>& top_p,
              const Vector<uint64_t>& seed, const Vector<uint64_t>& position) {
  const size_t n = rows.size(), vocabulary = logits.shape(1);
  same_length("mask_of", mask_of.size(), n);
  same_length("edit_ends", edit_ends.size(), n);
  same_length("temperature", temperature.size(), n);
  same_length("min_p", min_p.size(), n);
  same_length("top_k", top_k.size(), n);
  same_length("top_p", top_p.size(), n);
  same_length("seed", seed.size(), n);
  same_length("position", position.size(), n);
  within("banned", banned, vocabulary);
  within("edited", edited, vocabulary);
  if (edited.size() != edited_scores.size())
    throw std::invalid_argument("sampling: edited and edited_scores differ in length");
  if (masks.shape(0) > 0 && masks.shape(1) != (vocabulary + 31) / 32)
    throw std::invalid_argument("sampling: masks have " + std::to_string(masks.shape(1)) +
                                " words for a vocabulary of " + std::to_string(vocabulary));
  int64_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    if (mask_of.data()[i] < -1 || mask_of.data()[i] >= static_cast<int64_t>(masks.shape(0)))
      throw std::invalid_argument("sampling: mask " + std::to_string(mask_of.data()[i]) + " of " +
                                  std::to_string(masks.shape(0)));
    if (rows.data()[i] < 0 || static_cast<size_t>(rows.data()[i]) >= logits.shape(0))
      throw std::invalid_argument("sampling: row " + std::to_string(rows.data()[i]) + " of " +
                                  std::to_string(logits.shape(0)));
    if (edit_ends.data()[i] < begin || edit_ends.data()[i] > static_cast<int64_t>(edited.size()))
      throw std::invalid_argument("sampling: edit_ends is not ascending within edited");
    begin = edit_ends.data()[i];
  }
  auto* tokens = new int32_t[n];
  nb::capsule owner(tokens, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  {
    nb::gil_scoped_release release;
    RowSampler sampler(*kernels_for(simd_chosen()).rows);
    begin = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto first = static_cast<size_t>(begin);
      const auto count = static_cast<size_t>(edit_ends.data()[i] - begin);
      begin = edit_ends.data()[i];
      SamplingRow row;
      row.logits = {logits.data() + static_cast<size_t>(rows.data()[i]) * vocabulary, vocabulary};
      row.banned = {banned.data(), banned.size()};
      if (mask_of.data()[i] >= 0)
        row.mask = {masks.data() + static_cast<size_t>(mask_of.data()[i]) * masks.shape(1),
                    masks.shape(1)};
      row.edited = {edited.data() + first, count};
      row.edited_scores = {edited_scores.data() + first, count};
      row.temperature = temperature.data()[i];
      row.min_p = min_p.data()[i];
      row.top_k = top_k.data()[i];
      row.top_p = top_p.data()[i];
      row.seed = seed.data()[i];
      row.position = position.data()[i];
      tokens[i] = sampler.choose(row);
    }
  }
  return Tokens(tokens, {n}, owner);
}

}  // namespace

void bind_sampling(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("sampling", "Tokens from rows of scores.");
  m.def("choose", &choose, "logits"_a, "rows"_a, "banned"_a, "masks"_a, "mask_of"_a, "edit_ends"_a,
        "edited"_a, "edited_scores"_a, "temperature"_a, "min_p"_a, "top_k"_a, "top_p"_a, "seed"_a,
        "position"_a,
        "int32 [rows]: a token for each of `rows` of logits, -1 where scores make no distribution, -2 "
        "where edits and mask leave none. Row i is chosen from the bits of masks[mask_of[i]], from all ids "
        "at -1. Row i's edits are edited[edit_ends[i-1]:edit_ends[i]].");
  m.attr("NO_DISTRIBUTION") = kNoDistribution;
  m.attr("NONE_LEFT") = kNoneLeft;
  m.def("uniform", &philox_uniform, "seed"_a, "position"_a);
}

}  // namespace pellucid
