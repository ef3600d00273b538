// Portable C++: as much as the compiler makes of it for any processor of this kind.
#include <cstdint>

#define PELLUCID_ISA generic

namespace pellucid::PELLUCID_ISA {
namespace {

typedef uint64_t Words __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
typedef uint16_t Ints __attribute__((vector_size(16)));
constexpr int64_t kDotProducts = 8;

template <class Register>
inline void opaque(Register& x) {
#if defined(__x86_64__) || defined(_M_X64)
  asm volatile("" : "+x"(x));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(x));
#else
  asm volatile("" : "+m"(x));
#endif
}
inline Floats as_floats(float x) { return Floats{} + x; }
inline Ints as_ints(uint16_t x) { return Ints{} + x; }
inline Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
inline Ints dot(Ints& a, Ints& b, Ints c) {
  opaque(a);  // or one product would do for all
  return c + a * b;
}
inline float first(Floats x) { return x[0]; }
inline int64_t first(Ints x) { return x[0]; }

}  // namespace
}  // namespace pellucid::PELLUCID_ISA

#include "kernels/peaks/peaks.inl.h"

namespace pellucid {
constinit const PeakKernels kPeakKernelsGeneric = generic::kPeakKernels;
}
