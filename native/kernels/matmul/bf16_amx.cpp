// Products of bfloat16 by tiles: weights are opened chunk by chunk of K, and two tiles of 16 rows meet two groups
// of 16 outputs, so that each operand is loaded for two products.
//
// Measured on a two-core Xeon (Emerald Rapids), whose tiles have two speeds (see the lab log): four products and
// the loads of their operands take 7 ns a product at the fast one, where loads are hidden, and 26 to 29 at the slow
// one, where nothing is. Opening a block takes 18 ns, as much as multiplying it by 16 to 32 rows.
//
// Sums are stored at the end of a chunk of K and read only when the next tile's are made: a load waits for an older
// store whose address has the same low 12 bits, and that store for its products.
//
// This source must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be this one.
#include "kernels/matmul/bf16.h"
#include "kernels/matmul/matmul_avx512vnni.inl.h"
#include "simd/amx_tiles.h"

namespace pellucid::matmul {
namespace {

constexpr int kTileRows = 16;
constexpr int64_t kChunkBlocks = 18;          // along K, opened at once: 36 KB of two groups
constexpr int64_t kStripRows = 512;           // that read the same opened weights, at most
constexpr int64_t kStripBytes = 1024 * 1024;  // of their activations, for the second-level cache
constexpr int64_t kMostTiles = kStripRows / kTileRows + 2;  // of a strip, which ends on whole tiles

using TileSums = float[2][kTileRows][16];  // of a tile of rows and two groups

struct alignas(4096) Space {
  uint8_t weights[2][kChunkBlocks][1024];  // by group; a tile of 32 values of 16 outputs
  TileSums done[2];                        // of two tiles of rows, when all of K is summed
  TileSums parts[kMostTiles];              // until then
};

// Opening

// D or M of each lane in both halves of it.
INLINE __m512i lower_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0xaaaaaaaa, _mm512_slli_epi32(x, 16));
}
INLINE __m512i upper_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0x55555555, _mm512_srli_epi32(x, 16));
}

// A code of each half of a lane at the upper end of a half's significand.
template <int nibble>
INLINE __m512i placed(__m512i codes) {
  if constexpr (nibble == 0) return _mm512_slli_epi16(codes, 6);
  if constexpr (nibble == 1) return _mm512_slli_epi16(codes, 2);
  if constexpr (nibble == 2) return _mm512_srli_epi16(codes, 2);
  if constexpr (nibble == 3) return _mm512_srli_epi16(codes, 6);
}

template <int nibble>
INLINE void open_row(__m512i codes, __m512h d, __m512h m, uint8_t* to) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i one = _mm512_set1_epi16(0x3c00);
  const __m512i code = _mm512_ternarylogic_epi32(placed<nibble>(codes), _mm512_set1_epi16(0x3c0), one, kAndOr);
  const __m512i half = _mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(code), d, m));
  // (half + 4) >> 3 spreads the sign over bits that are none of the magnitude.
  const __m512i eighth = _mm512_mulhrs_epi16(half, _mm512_set1_epi16(0x1000));
  _mm512_store_si512(to, _mm512_and_si512(eighth, _mm512_set1_epi16(static_cast<int16_t>(0x8fff))));
}

template <bool minima>
INLINE void open_block(const uint8_t* param, const uint8_t* codes, uint8_t* to) {
  __m512h d, m;
  if constexpr (minima) {
    const __m512i d_m = bytes64(param);
    d = _mm512_castsi512_ph(lower_twice(d_m)), m = _mm512_castsi512_ph(upper_twice(d_m));
  } else {
    d = _mm512_castsi512_ph(lower_twice(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(param)))));
    m = _mm512_mul_ph(d, _mm512_set1_ph(static_cast<_Float16>(-1.5f)));
  }
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s, to += 256) {
    const __m512i v = bytes64(codes + 64 * s);
    open_row<0>(v, d, m, to), open_row<1>(v, d, m, to + 64);
    open_row<2>(v, d, m, to + 128), open_row<3>(v, d, m, to + 192);
  }
}

// Blocks [begin, end) of K of one or two groups, and the rows of a strip.
struct Chunk {
  int64_t group, begin, end;
  int groups;
  const uint8_t* x;  // of the strip's first row, from the chunk's first block on
  int64_t first, rows;
  bool begins, ends;  // all of K
};

template <bool minima>
INLINE void open_chunk(const Bf16Product& p, const Chunk& chunk, Space& space) {
  constexpr int64_t kParam = minima ? 64 : 32;
  const int64_t bytes = p.shape.group_bytes(), count = chunk.end - chunk.begin;
  for (int g = 0; g < chunk.groups; ++g) {
    const uint8_t* group = p.groups + (chunk.group + g) * bytes;
    const uint8_t* param = group + p.shape.group_params() + chunk.begin * kParam;
    const uint8_t* codes = group + p.shape.group_codes() + chunk.begin * 256;
    for (int64_t b = 0; b < count; ++b, param += kParam, codes += 256) {
      // What the next two groups have here.
      const auto* next = reinterpret_cast<const char*>(codes + 2 * bytes);
      for (int line = 0; line < 4; ++line) _mm_prefetch(next + 64 * line, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(param + 2 * bytes), _MM_HINT_T0);
      open_block<minima>(param, codes, space.weights[g][b]);
    }
  }
  tiles::seen(&space);
}

// A tile's rows of the product: the first `skip` of them were another tile's.
struct Tile {
  int64_t first;
  int skip, rows;
};

INLINE Tile tile_at(const Chunk& chunk, int64_t index) {
  const int64_t wanted = index * kTileRows;
  if (chunk.rows < kTileRows) return {0, 0, static_cast<int>(chunk.rows)};
  const int64_t first = wanted + kTileRows <= chunk.rows ? wanted : chunk.rows - kTileRows;
  return {first, static_cast<int>(wanted - first), kTileRows};
}

// The sums of a tile of rows times its factors, to where the product wants them.
INLINE void finish(const Bf16Product& p, const Chunk& chunk, const Tile& tile, const TileSums& sums) {
  for (int g = 0; g < chunk.groups; ++g) {
    const int64_t output = (chunk.group + g) * 16, left = p.n_out - output;
    Sink sink = p.sink;
    sink.out += output + (chunk.first + tile.first) * sink.ldo;
    if (sink.bias) sink.bias += output;
    sink.lanes = static_cast<int>(left < 16 ? left : 16);
    const __m512 factor = _mm512_loadu_ps(p.groups + (chunk.group + g) * p.shape.group_bytes());
    for (int r = tile.skip; r < tile.rows; ++r)
      store(_mm512_mul_ps(_mm512_load_ps(sums[g][r]), factor), r, sink);
  }
}

template <bool two_groups, bool two_tiles>
INLINE void begin_sums(const Chunk& chunk, const TileSums* parts) {
  if (chunk.begins) {
    tiles::clear<0>(), tiles::clear<1>();
    if constexpr (two_tiles) tiles::clear<2>(), tiles::clear<3>();
    return;
  }
  tiles::load<0>(parts[0][0], 64);
  if constexpr (two_groups) tiles::load<1>(parts[0][1], 64);
  if constexpr (two_tiles) tiles::load<2>(parts[1][0], 64);
  if constexpr (two_tiles && two_groups) tiles::load<3>(parts[1][1], 64);
}

template <bool two_groups, bool two_tiles>
INLINE void store_sums(TileSums* to) {
  tiles::store<0>(to[0][0], 64);
  if constexpr (two_groups) tiles::store<1>(to[0][1], 64);
  if constexpr (two_tiles) tiles::store<2>(to[1][0], 64);
  if constexpr (two_tiles && two_groups) tiles::store<3>(to[1][1], 64);
}

// One or two tiles of rows times the opened blocks.
template <bool two_groups, bool two_tiles>
INLINE void add_products(const uint8_t* x0, const uint8_t* x1, int64_t stride, int64_t blocks,
                         const Space& space) {
  for (int64_t b = 0; b < blocks; ++b, x0 += 64, x1 += 64) {
    tiles::load<4>(x0, stride), tiles::load<6>(space.weights[0][b], 64);
    tiles::multiply_bf16<0, 4, 6>();
    if constexpr (two_groups) tiles::load<7>(space.weights[1][b], 64), tiles::multiply_bf16<1, 4, 7>();
    if constexpr (two_tiles) tiles::load<5>(x1, stride), tiles::multiply_bf16<2, 5, 6>();
    if constexpr (two_tiles && two_groups) tiles::multiply_bf16<3, 5, 7>();
  }
}

// What of a strip waits for its sums to be finished.
struct Waiting {
  Tile tiles[2];
  int count = 0;

  INLINE void finish_all(const Bf16Product& p, const Chunk& chunk, const Space& space) {
    for (int i = 0; i < count; ++i) finish(p, chunk, tiles[i], space.done[i]);
    count = 0;
  }
};

template <bool two_groups, bool two_tiles>
INLINE void multiply_rows(const Bf16Product& p, const Chunk& chunk, int64_t index, Waiting& waiting, Space& space) {
  const int64_t stride = p.shape.row_bytes();
  const Tile first = tile_at(chunk, index), second = two_tiles ? tile_at(chunk, index + 1) : first;
  TileSums* parts = space.parts + index;
  begin_sums<two_groups, two_tiles>(chunk, parts);
  add_products<two_groups, two_tiles>(chunk.x + first.first * stride, chunk.x + second.first * stride, stride,
                                      chunk.end - chunk.begin, space);
  if (!chunk.ends) return store_sums<two_groups, two_tiles>(parts);
  waiting.finish_all(p, chunk, space);
  store_sums<two_groups, two_tiles>(space.done);
  waiting = {{first, second}, two_tiles ? 2 : 1};
}

template <bool two_groups>
INLINE void multiply_chunk(const Bf16Product& p, const Chunk& chunk, Space& space) {
  const int64_t tiles = (chunk.rows + kTileRows - 1) / kTileRows;
  Waiting waiting;
  int64_t t = 0;
  for (; t + 1 < tiles; t += 2) multiply_rows<two_groups, true>(p, chunk, t, waiting, space);
  if (t < tiles) multiply_rows<two_groups, false>(p, chunk, t, waiting, space);
  waiting.finish_all(p, chunk, space);
}

template <bool minima>
INLINE void multiply_strip(const Bf16Product& p, int64_t first, int64_t rows, Space& space) {
  const int64_t blocks = p.shape.blocks, chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
  Chunk chunk;
  chunk.first = first, chunk.rows = rows;
  for (chunk.group = p.group_begin; chunk.group < p.group_end; chunk.group += chunk.groups) {
    chunk.groups = p.group_end - chunk.group < 2 ? 1 : 2;
    for (int64_t c = 0; c < chunks; ++c) {
      chunk.begin = blocks * c / chunks, chunk.end = blocks * (c + 1) / chunks;
      chunk.begins = c == 0, chunk.ends = c + 1 == chunks;
      chunk.x = p.x + first * p.shape.row_bytes() + chunk.begin * 64;
      open_chunk<minima>(p, chunk, space);
      if (chunk.groups == 2) multiply_chunk<true>(p, chunk, space);
      else multiply_chunk<false>(p, chunk, space);
    }
  }
}

template <bool minima>
void multiply_all(const Bf16Product& p) {
  Space space;
  const int64_t fit = kStripBytes / p.shape.row_bytes() / kTileRows * kTileRows;
  int64_t most = fit < kStripRows ? fit : kStripRows;
  if (most < kTileRows) most = kTileRows;
  const int64_t strips = (p.rows + most - 1) / most;
  tiles::shape_for_products(static_cast<int>(p.rows < kTileRows ? p.rows : kTileRows));
  for (int64_t s = 0, row = 0; s < strips; ++s) {
    // All but the last are whole tiles, and no last one is less than a tile.
    const int64_t end = s + 1 == strips ? p.rows : p.rows * (s + 1) / strips / kTileRows * kTileRows;
    multiply_strip<minima>(p, row, end - row, space);
    row = end;
  }
  _tile_release();
}

void multiply(const Bf16Product& p) {
  if (p.shape.minima) multiply_all<true>(p);
  else multiply_all<false>(p);
}

struct alignas(64) Places {
  uint16_t value[kBlock];
};
constexpr Places places() {
  Places p = {};
  for (int i = 0; i < kBlock; ++i) p.value[i] = static_cast<uint16_t>(bf16_value(i));
  return p;
}
constexpr Places kPlaces = places();

// x 2^64, or NaN for what is not finite.
INLINE __m512 enlarged(const float* x) {
  const __m512 value = _mm512_loadu_ps(x);
  return _mm512_fmadd_ps(value, _mm512_set1_ps(kBf16Activations), _mm512_sub_ps(value, value));
}

void round_row(const float* x, int64_t k, uint8_t* row) {
  const __m512i order = _mm512_load_si512(kPlaces.value);
  for (int64_t i = 0; i < k; i += kBlock, row += 64) {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(enlarged(x + i + 16), enlarged(x + i));
    __m512i bits;
    __builtin_memcpy(&bits, &rounded, 64);
    _mm512_storeu_si512(row, _mm512_permutexvar_epi16(order, bits));
  }
}

}  // namespace

const Bf16Kernels kBf16Amx = {round_row, multiply};

}  // namespace pellucid::matmul
