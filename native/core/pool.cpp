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
constexpr auto kBarrierSpin = std::chrono::microseconds(100);

inline void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is no longer `old`: spinning at first, then asleep.
uint32_t wait_while(const std::atomic<uint32_t>& value, uint32_t old, Clock::duration spin) {
  constexpr int kLooks = 32;  // between two readings of the clock
  const auto deadline = Clock::now() + spin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      relax();
    }
  } while (Clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

// What the threads of one pool share; each hot word has a cache line of its own.
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
    body_ = body;
    argument_ = argument;
    if (size_ > 1) announce();
    Worker worker(*this, 0);
    body(argument, worker);
    barrier();  // nobody may still be reading `argument`
  }

  void barrier() {
    if (size_ == 1) {
      next_.store(0, std::memory_order_relaxed);
      return;
    }
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      generation_.notify_all();
    } else {
      wait_while(generation_, generation, kBarrierSpin);
    }
  }

  int64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void stop() {
    body_ = nullptr;
    announce();
    for (auto& thread : threads_) thread.join();
  }

  void announce() {
    step_.fetch_add(1, std::memory_order_release);
    step_.notify_all();
  }

  void serve(int index) {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_while(step_, seen, kLinger);
      if (body_ == nullptr) return;
      Worker worker(*this, index);
      body_(argument_, worker);
      barrier();
    }
  }

  const int size_;
  std::mutex mutex_;
  Body body_ = nullptr;
  void* argument_ = nullptr;
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> step_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> next_{0};
};

void Worker::barrier() { team_.barrier(); }
int64_t Worker::next() { return team_.next(); }

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
