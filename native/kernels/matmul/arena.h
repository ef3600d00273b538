// Memory for packed weights: few large pieces in large pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace pellucid {

// Bytes of any value, aligned to 64; from 2 MB on in large pages, where the system grants them. Throws
// std::bad_alloc.
std::shared_ptr<uint8_t> allocate_pages(size_t bytes);

// One row at a time reads every weight once for each token; with pages of 4 KB a tenth to a third
// of that time went into finding them. Large pages must be aligned to their size, which most
// weights are smaller than, so weights lie one after another in pieces of many pages.
class WeightArena {
 public:
  static constexpr size_t kPieceBytes = size_t{32} << 20;

  // Pieces are of `piece_bytes` bytes, or of what does not fit one.
  explicit WeightArena(size_t piece_bytes = kPieceBytes) : piece_bytes_(piece_bytes) {}

  // Bytes of any value, aligned to 64, that live as long as the pointer. Throws std::bad_alloc. May
  // be called by several threads.
  std::shared_ptr<uint8_t> allocate(size_t bytes);

 private:
  const size_t piece_bytes_;
  std::mutex mutex_;
  std::shared_ptr<uint8_t> piece_;  // the one being filled
  size_t size_ = 0, used_ = 0;
};

}  // namespace pellucid
