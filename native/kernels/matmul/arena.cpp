#include "kernels/matmul/arena.h"

#include <algorithm>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pellucid {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kLine = 64;

size_t round_up(size_t bytes, size_t unit) {
  if (bytes > SIZE_MAX - unit) throw std::bad_alloc();
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::shared_ptr<uint8_t> allocate_pages(size_t bytes) {
  const std::align_val_t alignment{bytes < kLargePage ? kLine : kLargePage};
  const auto free = [alignment](uint8_t* p) { ::operator delete(p, alignment); };
  std::shared_ptr<uint8_t> piece(static_cast<uint8_t*>(::operator new(bytes, alignment)), free);
#if defined(__linux__)
  // A wish: where it is not granted all else works.
  if (bytes >= kLargePage) madvise(piece.get(), bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  return piece;
}

std::shared_ptr<uint8_t> WeightArena::allocate(size_t bytes) {
  bytes = round_up(bytes, kLine);
  const std::lock_guard lock(mutex_);
  if (bytes > size_ - used_) {
    const size_t size = std::max(round_up(piece_bytes_, kLine), bytes);
    piece_ = allocate_pages(size);
    size_ = size;
    used_ = 0;
  }
  uint8_t* at = piece_.get() + used_;
  used_ += bytes;
  return {piece_, at};
}

}  // namespace pellucid
