// Portable C++, the oracle.
#define PELLUCID_ISA generic
#include "quant/search.inl.h"

namespace pellucid::quant {
constinit const Searches kSearchesGeneric = generic::kSearches;
}
