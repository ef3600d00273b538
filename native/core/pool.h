// The threads that run a step.
//
// Invariants
//  1. One step runs at a time; a second caller waits for the first.
//  2. Work is handed out chunk by chunk to whoever is free. Which thread computes a chunk never
//     changes its result.
//  3. A phase ends when its chunks are computed, not when all threads have come: a thread that the
//     system took away holds up the chunk it has, if any, and one that comes late goes past the phases
//     that are over. So nothing of a step's body but its chunks may write what another thread reads.
//  4. Between steps a thread spins for `kLinger` (waking a sleeping one costs about 12 us) and then
//     sleeps; at a phase's end it spins for `kPhaseSpin`, then sleeps too.
//  5. The body of a step must not throw.
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
  Worker(Team& team, int index, uint32_t first_phase)
      : team_(team), index_(index), phase_(first_phase) {}
  int index() const { return index_; }

  // A phase: f(i) for 0 <= i < n, each by whichever thread comes first; all are done on return. Every
  // thread has the same phases of the same sizes, n below 2^32.
  template <class F>
  void for_each(int64_t n, F&& f) {
    if (n <= 0) return;
    int64_t computed = 0;
    for (int64_t i = claim(n); i < n; i = claim(n), ++computed) f(i);
    finish(computed, n);
  }

  // The same, with `begin()` before the first chunk that this thread has, if it has any: then what the
  // phase reads is still as it was when the phase began, and what `begin` makes of it is the thread's own.
  template <class B, class F>
  void for_each(int64_t n, B&& begin, F&& f) {
    bool begun = false;
    for_each(n, [&](int64_t i) {
      if (!begun) begin();
      begun = true;
      f(i);
    });
  }

 private:
  // The next chunk; n when there is none left.
  int64_t claim(int64_t n);
  // Says that `computed` chunks are, and waits for the rest.
  void finish(int64_t computed, int64_t n);

  Team& team_;
  int index_;
  uint32_t phase_;
};

class Pool {
 public:
  // `threads` counts the caller's own. Throws std::invalid_argument unless 1 to 1024.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // body(worker) on every thread that comes before the step is over, the caller's among them; returns
  // when all have ended. In a process that was forked since the last step, threads are made anew.
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
