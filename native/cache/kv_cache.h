// Keys and values of every layer in fixed-size pages.
//
// A page holds `page_size` positions (a multiple of 16) of one layer: for each kv head the codes of
// its keys, those of its values, then the parameters of both. All come in sub-blocks of 16 positions:
//
//     f32, f16   keys transposed to [head_dim][16], values [16][dim]: one lane is one key, then one
//                feature, and nothing is summed across lanes
//     int8       keys: for each 4 features 16 words, one a key, of their codes in the order 0 2 1 3,
//                each plus 128; values [16][dim] signed
//     int4       keys: for each 8 features 16 words, one a key; nibble n holds the code of feature
//                2 n, nibble n + 4 that of 2 n + 1. Values: for each 32 features 16 bytes of a key,
//                byte i with the codes of features i and 16 + i
//
// A vector of int8 or int4 is cut into blocks of 64 features and at the end perhaps one of 32, each
// turned by a Walsh-Hadamard transform before it is rounded (kernels/attention/rotate.inl.h), so
// that no feature stands out of its block. The parameters of a sub-block are, for each block:
//
//     int8       f16[16] scales: a code c means scale * c
//     int4       16 words, a 16-bit grid for each half of the block's 64 features, the first in the
//                low bits: a code c means scale * (c - zero). Bits 0 to 5 are 4 zero, bits 6 to 15
//                the scale: 5 of its exponent, from 2^-16 up, and 5 of its fraction. All ones:
//                no number
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pellucid {

constexpr int64_t kSubBlock = 16;  // positions
constexpr int64_t kKvBlock = 64;   // features that are turned together
constexpr int64_t kInt4Block = 32; // features that share a grid in int4; in int8 a whole block
constexpr int64_t kKvPadding = 32; // a vector in blocks is a multiple of so many features
constexpr int64_t kMostFed = 1024; // features of a vector whose errors can be fed on

enum class KvType : uint8_t { f16, f32, int8, int4 };

// Features that share a scale, in types of blocks.
constexpr int64_t scaled_block(KvType type) { return type == KvType::int4 ? kInt4Block : kKvBlock; }

struct KvTypes {
  KvType keys, values;
};

struct KvLayerShape {
  int64_t n_kv_heads;
  int64_t head_dim;
};

// How the keys, or the values, of one head lie in its part of a page.
struct KvSide {
  KvType type = KvType::f32;
  int64_t dim = 0;         // features kept: head_dim, or more, the others zero
  int64_t codes = 0;       // bytes of 16 positions
  int64_t params = 0;      // bytes of 16 positions
  int64_t codes_at = 0;    // bytes from the head's beginning
  int64_t params_at = 0;

  bool in_blocks() const { return type == KvType::int8 || type == KvType::int4; }
  int64_t blocks() const { return (dim + kKvBlock - 1) / kKvBlock; }
};

struct KvLayer {
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  KvSide keys, values;
  int64_t head_bytes = 0;  // between heads of a page
  int64_t page_bytes = 0;  // between pages
  std::byte* data = nullptr;

  std::byte* head(int64_t page, int64_t kv_head) const {
    return data + page * page_bytes + kv_head * head_bytes;
  }
};

KvLayer kv_layout(const KvLayerShape& shape, int64_t page_size, KvTypes types);

class KvCache {
 public:
  // Zeroed, and taken from the system only as it is touched. Throws std::invalid_argument naming a
  // size that is out of range, std::bad_alloc when the address space is not to be had.
  KvCache(const std::vector<KvLayerShape>& layers, int64_t n_pages, int64_t page_size, KvTypes types);

  int64_t n_pages() const { return n_pages_; }
  int64_t page_size() const { return page_size_; }
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
  size_t bytes_ = 0;
  std::vector<KvLayer> layers_;
  std::unique_ptr<std::byte, Unmap> memory_;
};

}  // namespace pellucid
