// All of attention for processors with tiles of bfloat16.
#define PELLUCID_ISA amx
#include "kernels/attention/bf16.inl.h"
#include "simd/amx_tiles.h"

namespace pellucid::PELLUCID_ISA {
namespace {

struct alignas(64) Places {
  uint16_t from[32];
};
constexpr Places interleaved() {
  Places places = {};
  for (int i = 0; i < 32; ++i) places.from[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  return places;
}
constexpr Places kInterleaved = interleaved();

template <bool two_tiles, bool two_columns>
PELLUCID_INLINE void multiply_tile(const TileProduct& p, int64_t row, int64_t column) {
  const uint32_t *rows = p.rows_words + row * p.rows_stride, *columns = p.tiles + column * p.tiles_stride;
  tiles::clear<0>(), tiles::clear<1>();
  if constexpr (two_tiles) tiles::clear<2>(), tiles::clear<3>();
  for (int64_t b = 0; b < p.blocks; ++b, rows += kPairs, columns += kTileWords) {
    tiles::load<4>(rows, p.rows_stride * 4), tiles::load<6>(columns, 64);
    tiles::multiply_bf16<0, 4, 6>();
    if constexpr (two_columns) tiles::load<7>(columns + p.tiles_stride, 64), tiles::multiply_bf16<1, 4, 7>();
    if constexpr (two_tiles)
      tiles::load<5>(rows + 16 * p.rows_stride, p.rows_stride * 4), tiles::multiply_bf16<2, 5, 6>();
    if constexpr (two_tiles && two_columns) tiles::multiply_bf16<3, 5, 7>();
  }
  float* sums = p.sums + row * p.sums_stride + column * 16;
  const int64_t stride = p.sums_stride * 4;
  tiles::store<0>(sums, stride);
  if constexpr (two_columns) tiles::store<1>(sums + 16, stride);
  if constexpr (two_tiles) tiles::store<2>(sums + 16 * p.sums_stride, stride);
  if constexpr (two_tiles && two_columns) tiles::store<3>(sums + 16 * p.sums_stride + 16, stride);
}

template <bool two_tiles>
PELLUCID_INLINE void multiply_rows(const TileProduct& p, int64_t row) {
  int64_t column = 0;
  for (; column + 1 < p.columns; column += 2) multiply_tile<two_tiles, true>(p, row, column);
  if (column < p.columns) multiply_tile<two_tiles, false>(p, row, column);
}

}  // namespace

PELLUCID_INLINE void round_pairs(F32x16 low, F32x16 high, uint32_t* words) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
  __m512i bits;
  __builtin_memcpy(&bits, &rounded, 64);
  _mm512_storeu_si512(words, _mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved.from), bits));
}

PELLUCID_INLINE void begin_products(int64_t rows) {
  tiles::shape_for_products(static_cast<int>(rows < 16 ? rows : 16));
}
PELLUCID_INLINE void end_products() { _tile_release(); }

PELLUCID_INLINE void multiply(const TileProduct& p) {
  tiles::seen(p.rows_words);
  int64_t row = 0;
  for (; row + 16 < p.rows; row += 32) multiply_rows<true>(p, row);
  if (row < p.rows) multiply_rows<false>(p, row);
}

}  // namespace pellucid::PELLUCID_ISA

namespace pellucid {
constinit const AttentionKernels kAttentionKernelsAmx = {amx::attend, amx::merge, amx::finish, amx::store_kv,
                                                         amx::attend_bf16};
}
