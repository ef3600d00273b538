#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace pellucid {
namespace {

constexpr int64_t kPeak = 16;        // scores a peak stands for
constexpr int64_t kBlock = 256;      // scores of 16 peaks; weights summed in float32
constexpr int64_t kFirstLook = 256;  // ranked tokens in which the top-p border is looked for at first
constexpr double kNothing = -std::numeric_limits<double>::infinity();

// For four bits, all ones where a bit is set.
constexpr auto kKept = [] {
  std::array<std::array<uint32_t, 4>, 16> kept{};
  for (uint32_t bits = 0; bits < 16; ++bits)
    for (uint32_t i = 0; i < 4; ++i) kept[bits][i] = (bits >> i & 1u) ? 0xFFFFFFFFu : 0u;
  return kept;
}();

bool ranks_before(double score, int32_t id, double other_score, int32_t other_id) {
  return score > other_score || (score == other_score && id < other_id);
}

}  // namespace

int32_t RowSampler::choose(const SamplingRow& row) {
  const bool plain = row.banned.empty() && row.mask.empty() && row.edited.empty();
  if (row.temperature == 0.0 && plain) return first_of_all(row);
  if (!load(row)) return kNoDistribution;
  if (largest_ == kNothing) return kNoneLeft;
  if (row.temperature == 0.0) return first_largest(row);
  const auto vocabulary = static_cast<int64_t>(row.logits.size());
  const bool by_rank = row.top_k > 0 && row.top_k < vocabulary;
  const double u = philox_uniform(row.seed, row.position);
  if (row.min_p <= 0.0 && !by_rank && row.top_p >= 1.0) return draw_from_all(row, u);
  if (row.min_p <= 0.0 && !by_rank) {
    const double wanted = row.top_p * total(row);
    for (int64_t count = kFirstLook;; count *= 8) {
      gather(row, border(count));
      weigh(row);
      double mass = 0.0;
      for (const auto& c : candidates_) mass += c.weight;
      if (mass >= wanted || count >= vocabulary) break;
    }
    rank();
    keep_nucleus(wanted);
    return draw(u);
  }
  if (row.min_p > 0.0) {
    // A little below the border; the weight decides.
    gather(row, largest_ + row.temperature * (std::log(row.min_p) - 1e-6) - 1e-6);
    weigh(row);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < row.min_p; });
  } else {
    gather(row, border(row.top_k));
    weigh(row);
  }
  rank();
  if (by_rank && static_cast<int64_t>(candidates_.size()) > row.top_k)
    candidates_.resize(static_cast<size_t>(row.top_k));
  if (row.top_p < 1.0) {
    double mass = 0.0;
    for (const auto& c : candidates_) mass += c.weight;
    keep_nucleus(row.top_p * mass);
  }
  return draw(u);
}

// Scores with the edited ones taken out, their peaks, and the largest of all.
bool RowSampler::load(const SamplingRow& row) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  const size_t n = row.logits.size();
  bool numbers = false;
  const float largest = kernels_.largest(row.logits.data(), static_cast<int64_t>(n), &numbers);
  if (!numbers || largest == kOut) return false;
  scores_.resize((n + kBlock - 1) / kBlock * kBlock);
  std::copy(row.logits.begin(), row.logits.end(), scores_.begin());
  std::fill(scores_.begin() + static_cast<int64_t>(n), scores_.end(), kOut);
  if (!row.mask.empty()) keep_only(row.mask);
  for (const int32_t id : row.banned) scores_[static_cast<size_t>(id)] = kOut;
  for (const int32_t id : row.edited) scores_[static_cast<size_t>(id)] = kOut;
  peaks_.resize(scores_.size() / kPeak);
  kernels_.peaks(scores_.data(), static_cast<int64_t>(scores_.size()), peaks_.data());
  bool peaks_are_numbers;
  largest_ = kernels_.largest(peaks_.data(), static_cast<int64_t>(peaks_.size()), &peaks_are_numbers);
  for (const double score : row.edited_scores) largest_ = std::max(largest_, score);
  return true;
}

// Scores without a bit in the mask are taken out. Scores are padded, so that every word has its 32.
// Most words are all ones or all zeros; in the others bits come in no order, and a branch for each
// took six times as long as this table.
void RowSampler::keep_only(std::span<const uint32_t> mask) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  float* scores = scores_.data();
  for (const uint32_t bits : mask) {
    if (bits == 0) std::fill_n(scores, 32, kOut);
    if (bits != 0 && bits != 0xFFFFFFFFu)
      for (uint32_t first = 0; first < 32; first += 4) {
        const auto& keep = kKept[bits >> first & 15u];
        for (uint32_t i = 0; i < 4; ++i) {
          const auto score = std::bit_cast<uint32_t>(scores[first + i]);
          const uint32_t chosen = (score & keep[i]) | (std::bit_cast<uint32_t>(kOut) & ~keep[i]);
          scores[first + i] = std::bit_cast<float>(chosen);
        }
      }
    scores += 32;
  }
}

// Greedy, and every score as it is: one pass, and a second up to the place.
int32_t RowSampler::first_of_all(const SamplingRow& row) const {
  bool numbers = false;
  const float largest =
      kernels_.largest(row.logits.data(), static_cast<int64_t>(row.logits.size()), &numbers);
  if (!numbers || largest == -std::numeric_limits<float>::infinity()) return kNoDistribution;
  const auto place = std::find(row.logits.begin(), row.logits.end(), largest);
  return static_cast<int32_t>(place - row.logits.begin());
}

// f(id) for the scores that peak p stands for, ascending.
template <class F>
void RowSampler::each_of_peak(size_t p, F&& f) const {
  const size_t first = p / kPeak * kBlock + p % kPeak;
  for (size_t id = first; id < first + kBlock; id += kPeak) f(id);
}

int32_t RowSampler::first_largest(const SamplingRow& row) const {
  size_t best = scores_.size();
  for (size_t i = 0; i < row.edited.size(); ++i)
    if (row.edited_scores[i] == largest_) best = std::min(best, static_cast<size_t>(row.edited[i]));
  for (size_t p = 0; p < peaks_.size(); ++p)
    if (static_cast<double>(peaks_[p]) == largest_)
      each_of_peak(p, [&](size_t id) {
        if (static_cast<double>(scores_[id]) == largest_) best = std::min(best, id);
      });
  return static_cast<int32_t>(best);
}

// A score that at least `count` ids reach, if so many are not banned: of `count` peaks each stands
// for one.
double RowSampler::border(int64_t count) {
  if (count >= static_cast<int64_t>(peaks_.size())) return -std::numeric_limits<double>::max();
  sorted_peaks_ = peaks_;
  const auto at = sorted_peaks_.begin() + (count - 1);
  std::nth_element(sorted_peaks_.begin(), at, sorted_peaks_.end(), std::greater<>());
  return std::max(static_cast<double>(*at), -std::numeric_limits<double>::max());
}

void RowSampler::gather(const SamplingRow& row, double border) {
  candidates_.clear();
  for (size_t i = 0; i < peaks_.size(); ++i) {
    if (static_cast<double>(peaks_[i]) < border) continue;
    each_of_peak(i, [&](size_t id) {
      if (static_cast<double>(scores_[id]) >= border)
        candidates_.push_back({scores_[id], static_cast<int32_t>(id), 0.0});
    });
  }
  for (size_t i = 0; i < row.edited.size(); ++i)
    if (row.edited_scores[i] >= border && row.edited_scores[i] > kNothing)
      candidates_.push_back({row.edited_scores[i], row.edited[i], 0.0});
}

void RowSampler::weigh(const SamplingRow& row) {
  for (auto& c : candidates_) c.weight = std::exp((c.score - largest_) / row.temperature);
}

void RowSampler::rank() {
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return ranks_before(a.score, a.id, b.score, b.id);
  });
}

// The sum of all weights; fills weights_ and block_sums_.
double RowSampler::total(const SamplingRow& row) {
  const auto n = static_cast<int64_t>(scores_.size());
  const double most = std::numeric_limits<float>::max();
  const auto factor = static_cast<float>(std::min(1.0 / row.temperature, most));
  weights_.resize(scores_.size());
  block_sums_.clear();
  for (int64_t i = 0; i < n; i += kBlock)
    block_sums_.push_back(kernels_.weights(scores_.data() + i, static_cast<float>(largest_), factor,
                                           std::min(kBlock, n - i), weights_.data() + i));
  for (size_t i = 0; i < row.edited.size(); ++i) {
    const double weight = std::exp((row.edited_scores[i] - largest_) / row.temperature);
    weights_[static_cast<size_t>(row.edited[i])] = static_cast<float>(weight);
    block_sums_[static_cast<size_t>(row.edited[i] / kBlock)] += weight;
  }
  double sum = 0.0;
  for (const double block : block_sums_) sum += block;
  return sum;
}

// Of ranked candidates the fewest that hold `wanted`.
void RowSampler::keep_nucleus(double wanted) {
  double mass = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    mass += candidates_[i].weight;
    if (mass < wanted) continue;
    candidates_.resize(i + 1);
    return;
  }
}

// The first candidate, by id, at which the running sum exceeds u of the whole.
int32_t RowSampler::draw(double u) {
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double sum = 0.0;
  for (const auto& c : candidates_) sum += c.weight;
  double running = 0.0;
  int32_t last = kNoneLeft;
  for (const auto& c : candidates_) {
    if (c.weight > 0.0) last = c.id;
    running += c.weight;
    if (running > u * sum) return last;
  }
  return last;
}

int32_t RowSampler::draw_from_all(const SamplingRow& row, double u) {
  const double target = u * total(row);
  double running = 0.0;
  for (size_t b = 0; b < block_sums_.size(); running += block_sums_[b++]) {
    if (running + block_sums_[b] <= target) continue;
    double within = running;
    const size_t end = std::min((b + 1) * kBlock, weights_.size());
    for (size_t i = b * kBlock; i < end; ++i) {
      within += weights_[i];
      if (within > target && weights_[i] > 0.0f) return static_cast<int32_t>(i);
    }
  }
  // Rounding left the target at the very end: the last token of any weight.
  const auto last = std::find_if(weights_.rbegin(), weights_.rend(), [](float w) { return w > 0.0f; });
  return static_cast<int32_t>(weights_.rend() - last) - 1;
}

double philox_uniform(uint64_t seed, uint64_t position) {
  constexpr uint64_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  uint32_t a = static_cast<uint32_t>(position), b = static_cast<uint32_t>(position >> 32), c = 0, d = 0;
  uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = kFirst * a, second = kSecond * c;
    a = static_cast<uint32_t>(second >> 32) ^ b ^ low;
    b = static_cast<uint32_t>(second);
    c = static_cast<uint32_t>(first >> 32) ^ d ^ high;
    d = static_cast<uint32_t>(first);
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  const uint64_t bits = static_cast<uint64_t>(a) << 32 | b;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace pellucid
