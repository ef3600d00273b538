// A program is a list of stages; all threads finish one before any begins the next.
#pragma once

#include <memory>
#include <vector>

#include "core/pool.h"
#include "program/frame.h"

namespace pellucid {

class Stage {
 public:
  virtual ~Stage() = default;
  // Bytes of scratch that each thread needs.
  virtual size_t scratch_bytes() const { return 0; }
  // Called by one thread before the step; may allocate and throw.
  virtual void prepare(const Frame&, int threads) { static_cast<void>(threads); }
  // Called by every thread, by one that comes late perhaps when its phases are over: outside of them
  // it writes nothing. Must not throw.
  virtual void run(const Frame& frame, Worker& worker) const = 0;
};

// An operation that acts on each row by itself.
class RowOp {
 public:
  virtual ~RowOp() = default;
  virtual void run(const Frame& frame, int64_t begin, int64_t end) const = 0;
};

// Row operations one after the other on a few rows at a time, which stay in the nearest cache.
class RowStage final : public Stage {
 public:
  explicit RowStage(RowKind kind) : kind_(kind) {}
  void add(std::unique_ptr<RowOp> op) { ops_.push_back(std::move(op)); }
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;

 private:
  RowKind kind_;
  std::vector<std::unique_ptr<RowOp>> ops_;
  int64_t chunk_ = 1;
};

}  // namespace pellucid
