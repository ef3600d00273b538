#include "kernels/matmul/measure.h"

#include <algorithm>
#include <chrono>

namespace pellucid {

std::vector<double> time_products(Pool& pool, const std::vector<const PackedWeight*>& weights,
                                  const Activations& x, float* out, int64_t ldo, int passes) {
  using Clock = std::chrono::steady_clock;
  constexpr int kChunksEach = 8;  // so that a thread the system takes away delays little
  std::vector<double> seconds;
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = Clock::now();
    pool.run([&](Worker& worker) {
      for (const PackedWeight* weight : weights) {
        const int64_t groups = weight->n_groups();
        const int64_t chunk = std::max<int64_t>(groups / (kChunksEach * pool.threads()), 1);
        worker.for_each((groups + chunk - 1) / chunk, [&](int64_t i) {
          weight->multiply(x, nullptr, out, ldo, false, i * chunk, std::min((i + 1) * chunk, groups));
        });
      }
    });
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

}  // namespace pellucid
