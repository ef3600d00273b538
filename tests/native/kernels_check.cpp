// Row and attention kernels of one instruction set against the generic twin, by bits. Prints a line
// for each, "NAME n compared, m wrong"; for processors that an emulator stands in for.
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cache/kv_cache.h"
#include "kernels/attention/attention.h"
#include "kernels/rows/rows.h"

using namespace pellucid;

#if defined(__aarch64__)
static const RowKernels& kRows = kRowKernelsNeon;
static const AttentionKernels& kAttention = kAttentionKernelsNeon;
#else
static const RowKernels& kRows = kRowKernelsAvx2;
static const AttentionKernels& kAttention = kAttentionKernelsAvx2;
#endif

namespace {

std::mt19937 generator(1);

std::vector<float> random_values(int64_t n, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(generator);
  return values;
}

int different(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], 4) != 0;
  return count;
}

void report(const char* name, int64_t compared, int wrong) {
  std::printf("%s %lld compared, %d wrong\n", name, static_cast<long long>(compared), wrong);
}

template <class F>
void compare_rows(const char* name, F&& run) {
  int wrong = 0;
  int64_t compared = 0;
  for (int64_t n : {1, 15, 16, 17, 64, 100, 576})
    for (float scale : {0.01f, 1.0f, 30.0f}) {
      const auto x = random_values(n, scale), z = random_values(n, 1.0f);
      std::vector<float> ours(x.size()), twin(x.size());
      run(kRows, x, z, ours);
      run(kRowKernelsGeneric, x, z, twin);
      wrong += different(ours, twin);
      compared += n;
    }
  report(name, compared, wrong);
}

void compare_attention(const char* name, KvTypes types, int64_t head_dim, float softcap, int64_t window, bool alibi) {
  constexpr int64_t kRowsHere = 150, kGroup = 3, kPage = 32;
  KvCache ours({{1, head_dim}}, 8, kPage, types), twin({{1, head_dim}}, 8, kPage, types);
  const auto k = random_values(kRowsHere * head_dim, 1.0f), v = random_values(kRowsHere * head_dim, 1.0f);
  const auto q = random_values(kRowsHere * kGroup * head_dim, 1.0f);
  const int32_t pages[] = {5, 2, 7, 0, 3};
  const float slopes[] = {0.5f, 0.1f, 0.02f};
  const auto feedback = random_values(head_dim * head_dim, 0.1f);  // of keys in int4 alone
  for (int64_t r = 0; r < kRowsHere; ++r) {
    const int64_t page = pages[r / kPage], slot = r % kPage;
    const float *key = &k[r * head_dim], *value = &v[r * head_dim];
    kAttention.store(key, nullptr, feedback.data(), value, ours.layers()[0], 0, page, slot);
    kAttentionKernelsGeneric.store(key, nullptr, feedback.data(), value, twin.layers()[0], 0, page, slot);
  }
  int wrong = 0;
  int64_t compared = 0;
  for (int64_t first = 0; first < kRowsHere * kGroup; first += 50) {
    AttentionItem item{};
    item.q = q.data();
    item.q_stride = kGroup * head_dim;
    item.group = kGroup;
    item.head_dim = head_dim;
    item.first_query = first;
    item.n_queries = first + 50 <= kRowsHere * kGroup ? 50 : kRowsHere * kGroup - first;
    item.window = window;
    item.scale = 0.2f;
    item.softcap = softcap;
    item.slopes = alibi ? slopes : nullptr;
    item.pages = pages;
    item.page_size = kPage;
    std::vector<float> result[2];
    for (int side = 0; side < 2; ++side) {
      item.layer = &(side ? twin : ours).layers()[0];
      const AttentionKernels& kernels = side ? kAttentionKernelsGeneric : kAttention;
      std::vector<float> scratch(attention_scratch(head_dim));
      std::vector<float> states(item.n_queries * state_size(*item.layer));
      const BlockRange seen = visible_blocks(item);
      kernels.attend(item, seen.begin, seen.end, states.data(), 0, scratch.data());
      result[side].resize(item.n_queries * head_dim);
      for (int64_t i = 0; i < item.n_queries; ++i)
        kernels.finish(&states[i * state_size(*item.layer)], *item.layer, &result[side][i * head_dim]);
    }
    wrong += different(result[0], result[1]);
    compared += static_cast<int64_t>(result[0].size());
  }
  report(name, compared, wrong);
}

}  // namespace

int main() {
  using V = std::vector<float>;
  const auto n = [](const V& x) { return static_cast<int64_t>(x.size()); };
  compare_rows("rms_norm", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.rms_norm(x.data(), z.data(), n(x), 1e-5f, y.data()); });
  compare_rows("layer_norm", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.layer_norm(x.data(), z.data(), x.data(), n(x), 1e-5f, y.data()); });
  compare_rows("rope half", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.rope(x.data(), z.data(), z.data(), n(x), n(x) / 2 * 2, true, y.data()); });
  compare_rows("rope interleaved", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.rope(x.data(), z.data(), z.data(), n(x), n(x) / 2 * 2, false, y.data()); });
  compare_rows("gelu", [&](const RowKernels& f, const V& x, const V&, V& y) { f.gelu(x.data(), n(x), y.data()); });
  compare_rows("gelu_tanh", [&](const RowKernels& f, const V& x, const V&, V& y) { f.gelu_tanh(x.data(), n(x), y.data()); });
  compare_rows("silu_mul", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.silu_mul(x.data(), z.data(), n(x), y.data()); });
  compare_rows("gelu_tanh_mul", [&](const RowKernels& f, const V& x, const V& z, V& y) { f.gelu_tanh_mul(x.data(), z.data(), n(x), y.data()); });
  compare_rows("softcap", [&](const RowKernels& f, const V& x, const V&, V& y) { f.softcap(x.data(), 5.0f, n(x), y.data()); });
  compare_rows("clamp", [&](const RowKernels& f, const V& x, const V&, V& y) { f.clamp(x.data(), 0.5f, n(x), y.data()); });
  compare_rows("largest", [&](const RowKernels& f, const V& x, const V&, V& y) { bool numbers; y[0] += f.largest(x.data(), n(x), &numbers); y[0] += numbers; });
  compare_rows("weights", [&](const RowKernels& f, const V& x, const V&, V& y) { y[0] += f.weights(x.data(), 3.0f, 0.7f, n(x), y.data()); });
  const struct { const char* name; KvTypes types; } all[] = {
      {"attention f16", {KvType::f16, KvType::f16}},
      {"attention f32", {KvType::f32, KvType::f32}},
      {"attention int8", {KvType::int8, KvType::int8}},
      {"attention int4", {KvType::int4, KvType::int4}},
  };
  for (const auto& [name, types] : all) {
    compare_attention(name, types, 64, 0.0f, 0, false);
    compare_attention(name, types, 20, 4.0f, 33, true);
  }
}
