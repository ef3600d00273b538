#include "quant/search.h"

namespace pellucid::quant {

const Searches& searches(Simd simd) {
#if defined(__x86_64__) || defined(_M_X64)
  if (simd == Simd::avx2 || simd == Simd::avx512 || simd == Simd::amx) return kSearchesAvx2;
#endif
  (void)simd;
  return kSearchesGeneric;
}

}  // namespace pellucid::quant
