// Keys and values of every layer in fixed-size pages.
//
// A page holds `page_size` positions (a multiple of 16) of one layer: for each kv head first its
// keys, then its values. Both come in sub-blocks of 16 positions, keys transposed to
// [head_dim][16] and values as [16][padded_dim], so that in attention one lane is one key, then one
// feature, and nothing is summed across lanes. `padded_dim` is head_dim rounded up to 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pellucid {

constexpr int64_t kSubBlock = 16;  // positions

enum class KvType : uint8_t { f16, f32 };

struct KvLayerShape {
  int64_t n_kv_heads;
  int64_t head_dim;
};

// Where things lie in one layer; strides in elements of the cache's type.
struct KvLayer {
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t padded_dim = 0;
  int64_t key_stride = 0;    // between sub-blocks of keys
  int64_t value_stride = 0;  // between sub-blocks of values
  int64_t values_at = 0;     // from a head's keys to its values
  int64_t head_stride = 0;
  int64_t page_stride = 0;
  std::byte* data = nullptr;
};

KvLayer kv_layout(const KvLayerShape& shape, int64_t page_size);

class KvCache {
 public:
  // Zeroed, and taken from the system only as it is touched. Throws std::invalid_argument naming a
  // size that is out of range, std::bad_alloc when the address space is not to be had.
  KvCache(const std::vector<KvLayerShape>& layers, int64_t n_pages, int64_t page_size, KvType type);

  int64_t n_pages() const { return n_pages_; }
  int64_t page_size() const { return page_size_; }
  KvType type() const { return type_; }
  size_t bytes() const { return bytes_; }
  const std::vector<KvLayer>& layers() const { return layers_; }

  // Every layer's keys and values of page pairs[2 i] copied to page pairs[2 i + 1]. Throws
  // std::invalid_argument naming the pair, before anything is copied, for a page that the cache does
  // not have and for a target that is named twice or is also a source: the order never matters.
  void copy_pages(std::span<const int32_t> pairs);

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* p) const;
  };
  int64_t n_pages_, page_size_;
  KvType type_;
  size_t bytes_ = 0;
  std::vector<KvLayer> layers_;
  std::unique_ptr<std::byte, Unmap> memory_;
};

}  // namespace pellucid
