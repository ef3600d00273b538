#include "program/frame.h"

#include <stdexcept>
#include <string>

namespace pellucid {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("step: " + what); }

template <class T>
std::string str(T value) {
  return std::to_string(value);
}

void check_cache(const KvCache& cache, const std::vector<KvLayerShape>& layers) {
  if (cache.layers().size() < layers.size())
    refuse("the cache has " + str(cache.layers().size()) + " layers, the model " + str(layers.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    const KvLayer& layer = cache.layers()[i];
    const KvLayerShape& model = layers[i];
    if (model.n_kv_heads == 0) continue;
    if (layer.n_kv_heads != model.n_kv_heads || layer.head_dim != model.head_dim)
      refuse("layer " + str(i) + " of the cache holds " + str(layer.n_kv_heads) + " heads of " +
             str(layer.head_dim) + ", the model's " + str(model.n_kv_heads) + " of " +
             str(model.head_dim));
  }
}

void check_rows(const StepArrays& step, const StepLimits& limits) {
  const size_t n = step.tokens.size();
  if (step.positions.size() != n)
    refuse(str(step.positions.size()) + " positions for " + str(n) + " tokens");
  for (size_t r = 0; r < n; ++r) {
    if (step.tokens[r] < 0 || step.tokens[r] >= limits.vocabulary)
      refuse("token " + str(step.tokens[r]) + " at row " + str(r) + " is not in the vocabulary of " +
             str(limits.vocabulary));
    if (step.positions[r] < 0 || step.positions[r] >= limits.positions)
      refuse("position " + str(step.positions[r]) + " at row " + str(r) + " is not below " +
             str(limits.positions));
  }
  for (const int32_t row : step.logit_rows)
    if (row < 0 || static_cast<size_t>(row) >= n)
      refuse("logit row " + str(row) + " is not among " + str(n) + " rows");
}

// The sequence's rows follow `next_row`, its positions each other, and its pages hold them.
void check_sequence(const SequenceRows& s, const std::string& name, const StepArrays& step,
                    const KvCache& cache, int64_t next_row) {
  const auto n_tokens = static_cast<int64_t>(step.tokens.size());
  if (s.first_row != next_row || s.length < 1 || s.length > n_tokens - s.first_row)
    refuse(name + ": rows " + str(s.first_row) + " to " + str(s.first_row + s.length) +
           " do not follow row " + str(next_row) + " of " + str(n_tokens));
  const int64_t pages_left = step.pages.data() + step.pages.size() - s.pages;
  if (s.start < 0 || s.n_pages < 0 || s.n_pages > pages_left)
    refuse(name + ": start " + str(s.start) + ", " + str(s.n_pages) + " pages");
  if (s.n_pages * cache.page_size() < s.start + s.length)
    refuse(name + ": " + str(s.n_pages) + " pages of " + str(cache.page_size()) +
           " do not hold positions to " + str(s.start + s.length));
  for (int64_t p = 0; p < s.n_pages; ++p)
    if (s.pages[p] < 0 || s.pages[p] >= cache.n_pages())
      refuse(name + ": page " + str(s.pages[p]) + " is not among the cache's " + str(cache.n_pages()));
  for (int64_t i = 0; i < s.length; ++i) {
    const int32_t position = step.positions[static_cast<size_t>(s.first_row + i)];
    if (position != s.start + i)
      refuse(name + ": row " + str(s.first_row + i) + " has position " + str(position) + ", must be " +
             str(s.start + i));
  }
}

void add_sequences(const StepArrays& step, const KvCache& cache, Frame& frame) {
  if (step.sequences.size() % 4) refuse("sequences are not rows of 4");
  const auto n_tokens = static_cast<int64_t>(step.tokens.size());
  frame.page_of_row.resize(step.tokens.size());
  int64_t next_row = 0;
  const int32_t* pages = step.pages.data();
  for (size_t i = 0; i + 3 < step.sequences.size(); i += 4) {
    const int32_t* row = step.sequences.data() + i;
    const SequenceRows s{row[0], row[1], row[2], pages, row[3]};
    check_sequence(s, "sequence " + str(i / 4), step, cache, next_row);
    for (int64_t j = 0; j < s.length; ++j)
      frame.page_of_row[static_cast<size_t>(next_row + j)] = pages[(s.start + j) / cache.page_size()];
    frame.sequences.push_back(s);
    next_row += s.length;
    pages += s.n_pages;
  }
  if (next_row != n_tokens) refuse("sequences cover " + str(next_row) + " of " + str(n_tokens) + " rows");
}

}  // namespace

Frame make_frame(const StepArrays& step, const KvCache& cache, const StepLimits& limits) {
  check_cache(cache, *limits.layers);
  check_rows(step, limits);
  Frame frame;
  frame.n_rows[static_cast<int>(RowKind::tokens)] = static_cast<int64_t>(step.tokens.size());
  frame.n_rows[static_cast<int>(RowKind::logits)] = static_cast<int64_t>(step.logit_rows.size());
  frame.tokens = step.tokens.data();
  frame.positions = step.positions.data();
  frame.logit_rows = step.logit_rows.data();
  frame.cache = &cache;
  add_sequences(step, cache, frame);
  return frame;
}

}  // namespace pellucid
