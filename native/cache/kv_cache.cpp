#include "cache/kv_cache.h"

#include <sys/mman.h>

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

}  // namespace

KvLayer kv_layout(const KvLayerShape& shape, int64_t page_size) {
  KvLayer layer;
  layer.n_kv_heads = shape.n_kv_heads;
  layer.head_dim = shape.head_dim;
  layer.padded_dim = (shape.head_dim + 15) / 16 * 16;
  layer.key_stride = layer.head_dim * kSubBlock;
  layer.value_stride = layer.padded_dim * kSubBlock;
  const int64_t sub_blocks = page_size / kSubBlock;
  layer.values_at = sub_blocks * layer.key_stride;
  layer.head_stride = sub_blocks * (layer.key_stride + layer.value_stride);
  layer.page_stride = layer.n_kv_heads * layer.head_stride;
  return layer;
}

void KvCache::Unmap::operator()(std::byte* p) const { munmap(p, bytes); }

KvCache::KvCache(const std::vector<KvLayerShape>& layers, int64_t n_pages, int64_t page_size,
                 KvType type)
    : n_pages_(n_pages), page_size_(page_size), type_(type), memory_(nullptr, Unmap{0}) {
  in_range("n_pages", n_pages);
  in_range("page_size", page_size);
  if (page_size % kSubBlock != 0)
    throw std::invalid_argument("KV cache: page_size is " + std::to_string(page_size) +
                                ", must be a multiple of 16");
  const size_t element = type == KvType::f16 ? 2 : 4;
  std::vector<size_t> starts;
  for (const auto& shape : layers) {
    in_range("n_kv_heads", shape.n_kv_heads);
    in_range("head_dim", shape.head_dim);
    layers_.push_back(kv_layout(shape, page_size));
    starts.push_back(bytes_);
    const double whole = static_cast<double>(layers_.back().page_stride) *
                         static_cast<double>(n_pages) * static_cast<double>(element);
    if (whole + static_cast<double>(bytes_) > static_cast<double>(kMostBytes)) throw std::bad_alloc();
    bytes_ += static_cast<size_t>(layers_.back().page_stride * n_pages) * element;
  }
  if (bytes_ == 0) return;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  memory_ = {static_cast<std::byte*>(p), Unmap{bytes_}};
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].data = memory_.get() + starts[i];
}

}  // namespace pellucid
