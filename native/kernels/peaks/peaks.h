// What a processor can do at best: the yardstick that every kernel's speed is held against.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pool.h"
#include "kernels/dispatch.h"

namespace pellucid {

// One thread's work on one instruction set. A round is a number of independent chains of the
// fastest multiply-add there is, enough of them that its latency is hidden.
struct PeakKernels {
  // The sum of `n` words, so that no read can be left out. n is a multiple of 128.
  uint64_t (*read)(const uint64_t* words, int64_t n);
  // Products of 8-bit integers, added up in 32 bits. Returns a value that depends on all of them.
  int64_t (*int8)(int64_t rounds);
  int64_t int8_operations;  // of a round; a multiply and an add are two
  float (*f32)(int64_t rounds);
  int64_t f32_operations;
};

extern const PeakKernels kPeakKernelsGeneric;
#if defined(__x86_64__) || defined(_M_X64)
extern const PeakKernels kPeakKernelsAvx2;
extern const PeakKernels kPeakKernelsAvx512;
#elif defined(__aarch64__)
extern const PeakKernels kPeakKernelsNeon;
#endif

const PeakKernels& peak_kernels(Simd simd);

// Each of `passes` passes by all threads of `pool`; one more, which is not counted, comes first.

// Bytes a second of reading a buffer of `bytes` bytes, rounded up to whole megabytes. It lies in
// large pages where the system grants them, as weights do. Throws std::bad_alloc.
std::vector<double> peak_reads(Pool& pool, int64_t bytes, int passes, Simd simd);

enum class Arithmetic { int8, f32 };

// Operations a second of `rounds` rounds for each thread, or up to 15 more, in registers alone.
std::vector<double> peak_arithmetic(Pool& pool, Arithmetic kind, int64_t rounds, int passes,
                                    Simd simd);

}  // namespace pellucid
