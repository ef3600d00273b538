// AVX2: the compiler makes a register of the eight lanes of a sum.
#define PELLUCID_ISA avx2
#include "quant/search.inl.h"

namespace pellucid::quant {
constinit const Searches kSearchesAvx2 = avx2::kSearches;
}
