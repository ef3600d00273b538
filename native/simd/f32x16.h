// Sixteen floats, whatever the processor's registers hold. A kernel is written once over this type
// and compiled once for each instruction set; every source that includes it defines PELLUCID_ISA.
//
// All instruction sets compute the same bits: each lane does the same IEEE operations, and sums
// over lanes fold in one order (i with i + 8, then + 4, + 2, + 1). So the generic version, plain
// loops over an array, is the oracle of the others by equality.
//
// Sources that include this must not use the standard library's inline functions: the linker keeps
// one copy of each, and it might be one compiled for a processor that we do not run on.
#pragma once

#include <stdint.h>

#include "core/half.h"

#ifndef PELLUCID_ISA
#error "define PELLUCID_ISA as generic, avx2, avx512, amx or neon before including this"
#endif

#define PELLUCID_IS_generic 1
#define PELLUCID_IS_avx2 2
#define PELLUCID_IS_avx512 3
#define PELLUCID_IS_neon 4
#define PELLUCID_IS_amx 5  // avx512 beside tiles
#define PELLUCID_PASTE_(a, b) a##b
#define PELLUCID_PASTE(a, b) PELLUCID_PASTE_(a, b)
#define PELLUCID_ISA_ID PELLUCID_PASTE(PELLUCID_IS_, PELLUCID_ISA)
#define PELLUCID_IN_512_BITS (PELLUCID_ISA_ID == PELLUCID_IS_avx512 || PELLUCID_ISA_ID == PELLUCID_IS_amx)

#define PELLUCID_INLINE inline __attribute__((always_inline))

#if PELLUCID_IN_512_BITS
#include "simd/f32x16_avx512.h"
#elif PELLUCID_ISA_ID == PELLUCID_IS_avx2
#include "simd/f32x16_avx2.h"
#elif PELLUCID_ISA_ID == PELLUCID_IS_neon
#include "simd/f32x16_neon.h"
#else
#include "simd/f32x16_generic.h"
#endif

#include "simd/math.h"
