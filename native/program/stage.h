// A program is a list of stages; all threads finish one before any begins the next.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/pool.h"
#include "program/frame.h"

namespace pellucid {

// An operation that acts on each row by itself.
class RowOp {
 public:
  virtual ~RowOp() = default;
  virtual void run(const Frame& frame, int64_t begin, int64_t end) const = 0;
};

class OwnRows;

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
  // The same, where every thread that has work first does that of `before` for itself. Only stages
  // that `can_follow` do so.
  virtual bool can_follow() const { return false; }
  virtual void run_after(const OwnRows& before, Worker& worker) const;
};

// Row operations one after the other on a few rows at a time, which stay in the nearest cache.
class RowStage final : public Stage {
 public:
  // `own_slots`: where all its results lie, if only the next stage reads them.
  explicit RowStage(RowKind kind, std::vector<int> own_slots = {})
      : kind_(kind), own_slots_(std::move(own_slots)) {}
  RowKind kind() const { return kind_; }
  const std::vector<int>& own_slots() const { return own_slots_; }
  // All operations on rows [begin, end).
  void rows(const Frame& frame, int64_t begin, int64_t end) const;
  void add(std::unique_ptr<RowOp> op) { ops_.push_back(std::move(op)); }
  void prepare(const Frame& frame, int threads) override;
  void run(const Frame& frame, Worker& worker) const override;

 private:
  RowKind kind_;
  std::vector<int> own_slots_;
  std::vector<std::unique_ptr<RowOp>> ops_;
  int64_t chunk_ = 1;
};

// A stage of rows as one thread computes it for itself.
class OwnRows {
 public:
  // frame: one whose results are the thread's own; seconds: how long it took, once it was computed.
  OwnRows(const RowStage& stage, const Frame& frame, double& seconds)
      : stage_(stage), frame_(frame), seconds_(seconds) {}
  const Frame& frame() const { return frame_; }
  void compute() const;

 private:
  const RowStage& stage_;
  const Frame& frame_;
  double& seconds_;
};

}  // namespace pellucid
