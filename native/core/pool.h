// The threads that run a step.
//
// Invariants
//  1. One step runs at a time; a second caller waits for the first.
//  2. Work is handed out chunk by chunk to whoever is free, so a thread that the system takes away
//     delays only the chunk it holds. Which thread computes a chunk never changes its result.
//  3. Between steps a thread spins for `kLinger` (waking a sleeping one costs about 12 us) and then
//     sleeps; within a step it spins at a barrier for `kBarrierSpin`, then sleeps too.
//  4. The body of a step must not throw.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace pellucid {

class Team;

// One thread's view of a running step.
class Worker {
 public:
  Worker(Team& team, int index) : team_(team), index_(index) {}
  int index() const { return index_; }

  // f(i) for 0 <= i < n, each by whichever thread comes first; all are done on return.
  template <class F>
  void for_each(int64_t n, F&& f) {
    for (int64_t i = next(); i < n; i = next()) f(i);
    barrier();
  }

  // Waits for all threads.
  void barrier();

 private:
  int64_t next();

  Team& team_;
  int index_;
};

class Pool {
 public:
  // `threads` counts the caller's own. Throws std::invalid_argument unless 1 to 1024.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // body(worker) on every thread; returns when all have ended. In a process that was forked
  // since the last step, threads are made anew.
  template <class F>
  void run(F&& body) {
    run_erased([](void* f, Worker& worker) { (*static_cast<F*>(f))(worker); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Body = void (*)(void*, Worker&);
  void run_erased(Body body, void* argument);
  Team& team();

  int threads_;
  pid_t owner_ = 0;
  std::unique_ptr<Team> team_;
};

}  // namespace pellucid
