#include "core/pool.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace pellucid {
namespace {

using Clock = std::chrono::steady_clock;

// A waking thread costs about 12 us; Python's share of a step is below this.
constexpr auto kLinger = std::chrono::microseconds(200);
constexpr auto kPhaseSpin = std::chrono::microseconds(100);

inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `done`: spinning at first, then asleep; `signal` changes whenever `done` may have.
template <class F>
void wait_until(F&& done, const std::atomic<uint32_t>& signal, Clock::duration spin) {
  constexpr int kLooks = 32;  // between two readings of the clock
  const auto deadline = Clock::now() + spin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) return;
      relax();
    }
  } while (Clock::now() < deadline);
  for (;;) {
    const uint32_t seen = signal.load(std::memory_order_acquire);  // before what it is a sign of
    if (done()) return;
    signal.wait(seen, std::memory_order_acquire);
  }
}

void raise(std::atomic<uint32_t>& signal) {
  signal.fetch_add(1, std::memory_order_acq_rel);
  signal.notify_all();
}

constexpr uint32_t phase_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
constexpr int64_t chunk_of(uint64_t ticket) { return static_cast<int64_t>(ticket & 0xffffffffu); }

}  // namespace

// What the threads of one pool share; each hot word has a cache line of its own.
//
// A ticket is the phase that is being computed and its next chunk. Only whoever ends the last chunk
// of a phase moves on to the next one, so that `ended_` belongs to the present phase. `inside_` counts
// the pool's threads that are in the step, and has kOpen while more may enter.
class Team {
 public:
  using Body = void (*)(void*, Worker&);

  explicit Team(int size) : size_(size) {
    threads_.reserve(static_cast<size_t>(size - 1));
    try {
      for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error&) {
      stop();
      throw std::runtime_error("the system gives no " + std::to_string(size) +
                               " threads: ask for fewer");
    }
  }

  ~Team() { stop(); }

  void run(Body body, void* argument) {
    const std::lock_guard<std::mutex> one_step(mutex_);
    Worker worker(*this, 0, phase());
    if (size_ == 1) {
      body(argument, worker);
      return;
    }
    body_ = body;
    argument_ = argument;
    first_phase_ = phase();
    inside_.fetch_or(kOpen, std::memory_order_release);
    raise(step_);
    body(argument, worker);
    inside_.fetch_and(~kOpen, std::memory_order_acq_rel);
    // Nobody may still be reading `argument`.
    wait_until([this] { return inside_.load(std::memory_order_acquire) == 0; }, left_, kPhaseSpin);
  }

  int64_t claim(uint32_t phase, int64_t n) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (phase_of(ticket) == phase && chunk_of(ticket) < n)
      if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire))
        return chunk_of(ticket);
    return n;
  }

  void finish(uint32_t phase, int64_t computed, int64_t n) {
    if (computed != 0 && ended_.fetch_add(computed, std::memory_order_acq_rel) + computed == n) {
      ended_.store(0, std::memory_order_relaxed);
      ticket_.store(static_cast<uint64_t>(phase + 1) << 32, std::memory_order_release);
      raise(moved_on_);
      return;
    }
    wait_until([this, phase] { return this->phase() != phase; }, moved_on_, kPhaseSpin);
  }

 private:
  static constexpr uint32_t kOpen = uint32_t{1} << 31;

  uint32_t phase() const { return phase_of(ticket_.load(std::memory_order_acquire)); }

  void stop() {
    stopping_.store(true, std::memory_order_release);
    raise(step_);
    for (auto& thread : threads_) thread.join();
  }

  void serve(int index) {
    uint32_t seen = 0;
    for (;;) {
      wait_until([&] { return step_.load(std::memory_order_acquire) != seen; }, step_, kLinger);
      seen = step_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_acquire)) return;
      if (!enter()) continue;  // the others were done before this thread had its turn
      Worker worker(*this, index, first_phase_);
      body_(argument_, worker);
      if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) raise(left_);
    }
  }

  bool enter() {
    uint32_t inside = inside_.load(std::memory_order_acquire);
    while (inside & kOpen)
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire))
        return true;
    return false;
  }

  const int size_;
  std::mutex mutex_;
  // Of the step; written while nobody is inside.
  Body body_ = nullptr;
  void* argument_ = nullptr;
  uint32_t first_phase_ = 0;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> ended_{0};
  alignas(64) std::atomic<uint32_t> inside_{0};
  // Signals to sleepers.
  alignas(64) std::atomic<uint32_t> step_{0};
  alignas(64) std::atomic<uint32_t> moved_on_{0};
  alignas(64) std::atomic<uint32_t> left_{0};
};

int64_t Worker::claim(int64_t n) { return team_.claim(phase_, n); }
void Worker::finish(int64_t computed, int64_t n) { team_.finish(phase_++, computed, n); }

Pool::Pool(int threads) : threads_(threads) {
  if (threads < 1 || threads > 1024)
    throw std::invalid_argument("threads must be 1 to 1024, not " + std::to_string(threads));
  team();
}

Pool::~Pool() {
  // A forked child has no threads to join; their memory is left to the process's end.
  if (owner_ != getpid()) static_cast<void>(team_.release());
}

Team& Pool::team() {
  if (owner_ != getpid()) {
    static_cast<void>(team_.release());
    team_ = std::make_unique<Team>(threads_);
    owner_ = getpid();
  }
  return *team_;
}

void Pool::run_erased(Body body, void* argument) { team().run(body, argument); }

}  // namespace pellucid
