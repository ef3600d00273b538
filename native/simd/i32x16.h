// Sixteen 32-bit integers beside sixteen floats, as words of small codes: what kernels that compute
// with 8-bit and 4-bit codes need. Integers are exact, so all instruction sets give the same.
#pragma once

#include "simd/f32x16.h"

#if PELLUCID_IN_512_BITS
#include "simd/i32x16_avx512.h"
#elif PELLUCID_ISA_ID == PELLUCID_IS_avx2
#include "simd/i32x16_avx2.h"
#elif PELLUCID_ISA_ID == PELLUCID_IS_neon
#include "simd/i32x16_neon.h"
#else
#include "simd/i32x16_generic.h"
#endif
