#include "cache/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace pellucid {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;  // of any one dimension
constexpr size_t kMostBytes = size_t{1} << 46;

void in_range(const char* name, int64_t value) {
  if (value < 1 || value > kMost)
    throw std::invalid_argument(std::string("KV cache: ") + name + " is " + std::to_string(value) +
                                ", must be 1 to " + std::to_string(kMost));
}

[[noreturn]] void refuse_copy(std::span<const int32_t> pairs, size_t i, const std::string& why) {
  throw std::invalid_argument("copy_pages: pair " + std::to_string(i) + ", " +
                              std::to_string(pairs[2 * i]) + " to " +
                              std::to_string(pairs[2 * i + 1]) + ": " + why);
}

void check_copies(std::span<const int32_t> pairs, int64_t n_pages) {
  if (pairs.size() % 2 != 0) throw std::invalid_argument("copy_pages: pairs are not rows of 2");
  std::vector<int32_t> sources, targets;
  for (size_t i = 0; i < pairs.size() / 2; ++i) {
    for (const int32_t page : {pairs[2 * i], pairs[2 * i + 1]})
      if (page < 0 || page >= n_pages)
        refuse_copy(pairs, i, "page " + std::to_string(page) + " is not among the cache's " +
                                  std::to_string(n_pages));
    sources.push_back(pairs[2 * i]);
    targets.push_back(pairs[2 * i + 1]);
  }
  std::sort(sources.begin(), sources.end());
  std::sort(targets.begin(), targets.end());
  for (size_t i = 0; i < pairs.size() / 2; ++i) {
    const int32_t target = pairs[2 * i + 1];
    const auto [first, last] = std::equal_range(targets.begin(), targets.end(), target);
    if (last - first > 1) refuse_copy(pairs, i, "another pair has the same target");
    if (std::binary_search(sources.begin(), sources.end(), target))
      refuse_copy(pairs, i, "the target is also a source");
  }
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// The features and bytes of one side; where they lie is for `kv_layout`.
KvSide side_of(KvType type, int64_t dim) {
  KvSide side;
  side.type = type;
  side.dim = side.in_blocks() ? round_up(dim, kKvPadding) : dim;
  switch (type) {
    case KvType::f32: side.codes = kSubBlock * side.dim * 4; break;
    case KvType::f16: side.codes = kSubBlock * side.dim * 2; break;
    case KvType::int8:
      side.codes = kSubBlock * side.dim;
      side.params = kSubBlock * side.blocks() * 2;
      break;
    case KvType::int4:
      side.codes = kSubBlock * side.dim / 2;
      side.params = kSubBlock * side.blocks() * 4;
      break;
  }
  return side;
}

}  // namespace

KvLayer kv_layout(const KvLayerShape& shape, int64_t page_size, KvTypes types) {
  const int64_t sub_blocks = page_size / kSubBlock;
  KvLayer layer;
  layer.n_kv_heads = shape.n_kv_heads;
  layer.head_dim = shape.head_dim;
  layer.keys = side_of(types.keys, shape.head_dim);
  layer.values = side_of(types.values, round_up(shape.head_dim, 16));
  layer.values.codes_at = sub_blocks * layer.keys.codes;
  layer.keys.params_at = layer.values.codes_at + sub_blocks * layer.values.codes;
  layer.values.params_at = layer.keys.params_at + sub_blocks * layer.keys.params;
  layer.head_bytes = layer.values.params_at + sub_blocks * layer.values.params;
  layer.page_bytes = layer.n_kv_heads * layer.head_bytes;
  return layer;
}

void KvCache::Unmap::operator()(std::byte* p) const { munmap(p, bytes); }

KvCache::KvCache(const std::vector<KvLayerShape>& layers, int64_t n_pages, int64_t page_size,
                 KvTypes types)
    : n_pages_(n_pages), page_size_(page_size), memory_(nullptr, Unmap{0}) {
  in_range("n_pages", n_pages);
  in_range("page_size", page_size);
  if (page_size % kSubBlock != 0)
    throw std::invalid_argument("KV cache: page_size is " + std::to_string(page_size) +
                                ", must be a multiple of 16");
  std::vector<size_t> starts;
  for (const auto& shape : layers) {
    in_range("n_kv_heads", shape.n_kv_heads);
    in_range("head_dim", shape.head_dim);
    layers_.push_back(kv_layout(shape, page_size, types));
    starts.push_back(bytes_);
    const double whole = static_cast<double>(layers_.back().page_bytes) *
                         static_cast<double>(n_pages);
    if (whole + static_cast<double>(bytes_) > static_cast<double>(kMostBytes)) throw std::bad_alloc();
    bytes_ += static_cast<size_t>(layers_.back().page_bytes * n_pages);
  }
  if (bytes_ == 0) return;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  memory_ = {static_cast<std::byte*>(p), Unmap{bytes_}};
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].data = memory_.get() + starts[i];
}

void KvCache::copy_pages(std::span<const int32_t> pairs) {
  check_copies(pairs, n_pages_);
  for (const auto& layer : layers_) {
    const size_t size = static_cast<size_t>(layer.page_bytes);
    for (size_t i = 0; i < pairs.size(); i += 2)
      std::memcpy(layer.data + static_cast<size_t>(pairs[i + 1]) * size,
                  layer.data + static_cast<size_t>(pairs[i]) * size, size);
  }
}

}  // namespace pellucid
