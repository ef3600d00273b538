// Tiles of AMX: their shapes, and the instructions on them.
//
// Tiles are read and written behind the compiler's back: what they shall find in memory must be `seen` first.
//
// A sum of products of bfloat16 takes 32 values at a time: two chains of fused multiply-adds, of the even and of
// the odd places, whose sum is added to the tile's. Numbers below the smallest normal one are zeros. (Intel, Instruction
// Set Extensions Programming Reference, "TDPBF16PS".)
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define PELLUCID_TILE_INLINE inline __attribute__((always_inline))

namespace pellucid::tiles {

PELLUCID_TILE_INLINE void seen(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// As LDTILECFG reads it.
struct alignas(64) Shapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Shapes) == 64);

// Tiles 0 to 3 hold sums of two tiles of rows and two of columns, 4 and 5 the rows' factors, 6 and 7 the columns':
// the first six of `rows` rows.
PELLUCID_TILE_INLINE void shape_for_products(int rows) {
  Shapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : 16);
  }
  seen(&shapes);
  _tile_loadconfig(&shapes);
}

// The compiler's own functions take no template parameter for a tile.
template <int tile>
PELLUCID_TILE_INLINE void load(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(tile));
}
template <int tile>
PELLUCID_TILE_INLINE void store(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
PELLUCID_TILE_INLINE void clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int sums, int rows, int columns>
PELLUCID_TILE_INLINE void multiply_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(rows), "i"(columns));
}

}  // namespace pellucid::tiles

#undef PELLUCID_TILE_INLINE
