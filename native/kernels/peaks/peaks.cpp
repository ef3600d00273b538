#include "kernels/peaks/peaks.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

#include "kernels/matmul/arena.h"

namespace pellucid {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 18;  // small beside a pass, so that nobody waits long
constexpr int64_t kPartsEach = 16;                 // of a thread's rounds, for the same reason
constexpr int64_t kMegabyte = int64_t{1} << 20;

// Seconds of each pass of `pass(worker)` on all threads together, from the first to start to the
// last to end.
template <class F>
std::vector<double> time_passes(Pool& pool, int passes, F&& pass) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = -1; i < passes; ++i) {
    const auto start = Clock::now();
    pool.run([&](Worker& worker) { pass(worker); });
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

std::vector<double> rates(double work, std::vector<double> seconds) {
  for (double& s : seconds) s = work / s;
  return seconds;
}

}  // namespace

const PeakKernels& peak_kernels(Simd simd) {
  switch (simd) {
#if defined(__x86_64__) || defined(_M_X64)
    case Simd::amx:
    case Simd::avx512: return kPeakKernelsAvx512;
    case Simd::avx2: return kPeakKernelsAvx2;
#elif defined(__aarch64__)
    case Simd::neon: return kPeakKernelsNeon;
#endif
    default: return kPeakKernelsGeneric;
  }
}

std::vector<double> peak_reads(Pool& pool, int64_t bytes, int passes, Simd simd) {
  const PeakKernels& kernels = peak_kernels(simd);
  const int64_t size = (bytes + kMegabyte - 1) / kMegabyte * kMegabyte;
  WeightArena arena(static_cast<size_t>(size));
  const std::shared_ptr<uint8_t> buffer = arena.allocate(static_cast<size_t>(size));
  std::memset(buffer.get(), 1, static_cast<size_t>(size));  // memory nobody wrote need not be there
  std::atomic<uint64_t> total{0};
  return rates(static_cast<double>(size), time_passes(pool, passes, [&](Worker& worker) {
                 worker.for_each(size / kChunkBytes, [&](int64_t i) {
                   const uint8_t* chunk = buffer.get() + i * kChunkBytes;
                   total += kernels.read(reinterpret_cast<const uint64_t*>(chunk),
                                         kChunkBytes / int64_t{sizeof(uint64_t)});
                 });
               }));
}

std::vector<double> peak_arithmetic(Pool& pool, Arithmetic kind, int64_t rounds, int passes,
                                    Simd simd) {
  const PeakKernels& kernels = peak_kernels(simd);
  const int64_t operations =
      kind == Arithmetic::int8 ? kernels.int8_operations : kernels.f32_operations;
  const int64_t each = (rounds + kPartsEach - 1) / kPartsEach, parts = kPartsEach * pool.threads();
  const double work =
      static_cast<double>(operations) * static_cast<double>(each) * static_cast<double>(parts);
  std::atomic<int64_t> total{0};
  return rates(work, time_passes(pool, passes, [&](Worker& worker) {
                 worker.for_each(parts, [&](int64_t) {
                   total += kind == Arithmetic::int8 ? kernels.int8(each)
                                                     : static_cast<int64_t>(kernels.f32(each));
                 });
               }));
}

}  // namespace pellucid
