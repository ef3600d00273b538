#include "kernels/matmul/measure.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

namespace pellucid::matmul {
namespace {

// Threads that meet: spins at first, then lets others run.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait() {
    const unsigned round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
      if (spins > 20000) std::this_thread::yield();
  }

 private:
  const int threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> round_{0};
};

// Seconds for each pass of work(thread) on all threads together.
std::vector<double> time_passes(int threads, int passes,
                                const std::function<void(int, Barrier&)>& work) {
  using Clock = std::chrono::steady_clock;
  Barrier barrier(threads);
  std::vector<double> seconds;
  const auto run = [&](int thread) {
    for (int pass = 0; pass < passes; ++pass) {
      barrier.wait();
      const auto start = Clock::now();
      work(thread, barrier);
      barrier.wait();
      if (thread == 0)
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& t : others) t.join();
  return seconds;
}

}  // namespace

std::vector<double> time_products(const std::vector<const PackedWeight*>& weights,
                                  const Activations& x, float* out, int64_t ldo, int threads,
                                  int passes) {
  return time_passes(threads, passes, [&](int thread, Barrier& barrier) {
    for (const PackedWeight* weight : weights) {
      const int64_t groups = weight->n_groups();
      weight->multiply(x, nullptr, out, ldo, false, groups * thread / threads,
                       groups * (thread + 1) / threads);
      if (threads > 1) barrier.wait();
    }
  });
}

std::vector<double> time_reads(int64_t bytes, int threads, int passes) {
  const std::vector<uint64_t> buffer(static_cast<size_t>(bytes / 8), 1);
  std::atomic<uint64_t> total{0};  // so that the reads are not left out
  return time_passes(threads, passes, [&](int thread, Barrier&) {
    const auto n = static_cast<int64_t>(buffer.size());
    const auto at = [&](int64_t i) { return buffer.begin() + n * i / threads; };
    total += std::accumulate(at(thread), at(thread + 1), uint64_t{0});
  });
}

}  // namespace pellucid::matmul
