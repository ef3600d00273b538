// Products of 16-bit integers for many rows: weights are opened into two bytes each, and a tile sums
// 16 rows by 16 outputs over a whole chunk of K.
//
// This source must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be this one.
#include "kernels/matmul/wide_avx512vnni.inl.h"

namespace pellucid::matmul {
namespace {

constexpr int kTileRows = 16;
constexpr int64_t kLeastRows = 9;     // that pay for opening the weights
constexpr int64_t kStripRows = 512;   // that read the same opened weights, at most
constexpr int64_t kStripBytes = 1024 * 1024;  // of their activations, for the second-level cache
constexpr int64_t kPairs = kWideChunk / 2;

struct alignas(4096) Space {
  uint8_t weights[kPairs][2][16][64];  // of a pair of blocks: the high bytes (signed), the low
  int32_t products[2][4][kTileRows][16];  // of two tiles in turn
  float sums[kStripRows + kTileRows][16];  // strips end on whole tiles
};

// Tiles are read and written behind the compiler's back.
INLINE void seen(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// As LDTILECFG reads it.
struct alignas(64) TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

// Tiles 0 and 1: high and low bytes of activations; 2 and 3: of weights; 4 to 7: products.
INLINE void shape_tiles(int rows) {
  TileShapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = static_cast<uint8_t>(tile == 2 || tile == 3 ? 16 : rows);
  }
  seen(&shapes);
  _tile_loadconfig(&shapes);
}

// d or m of each lane in both halves of it.
INLINE __m512i lower_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0xaaaaaaaa, _mm512_slli_epi32(x, 16));
}
INLINE __m512i upper_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0x55555555, _mm512_srli_epi32(x, 16));
}

// 64 weights from their codes, those of even places in `even`, the others in `odd`.
INLINE void open_step(__m512i even, __m512i odd, __m512i d, __m512i base, uint8_t* high, uint8_t* low) {
  const __m512i upper = _mm512_set1_epi16(static_cast<int16_t>(0xff00));
  const __m512i a = _mm512_add_epi16(_mm512_mullo_epi16(even, d), base);
  const __m512i b = _mm512_add_epi16(_mm512_mullo_epi16(odd, d), base);
  constexpr int kChoose = 0xca;  // a ? b : c
  _mm512_store_si512(high, _mm512_ternarylogic_epi32(upper, b, _mm512_srli_epi16(a, 8), kChoose));
  _mm512_store_si512(low, _mm512_ternarylogic_epi32(upper, _mm512_slli_epi16(b, 8), a, kChoose));
}

template <bool minima>
INLINE void open_block(const uint8_t* param, const uint8_t* codes, uint8_t (*high)[64], uint8_t (*low)[64]) {
  const __m512i d_m = wide_params<minima>(param), d = lower_twice(d_m);
  const __m512i eight_d = _mm512_slli_epi16(d, 3);
  const __m512i base = minima ? _mm512_sub_epi16(upper_twice(d_m), eight_d)
                              : _mm512_sub_epi16(_mm512_setzero_si512(), eight_d);
  const __m512i nibble = _mm512_set1_epi16(15);
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    const __m512i v = bytes64(codes + 64 * s);
    open_step(_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi16(v, 8), nibble), d, base,
              high[s], low[s]);
    open_step(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble), _mm512_srli_epi16(v, 12), d, base,
              high[4 + s], low[4 + s]);
  }
}

// Sixteen outputs and the blocks of one chunk.
struct Chunk {
  int64_t group, index, begin, end;  // the last two: blocks
};

template <bool minima>
INLINE void open_chunk(const WideProduct& p, const Chunk& chunk, Space& space) {
  const uint8_t* group = p.groups + chunk.group * p.shape.group_bytes();
  const uint8_t* param = group + p.shape.group_params() + chunk.begin * (minima ? 64 : 32);
  const uint8_t* codes = group + p.shape.group_codes() + chunk.begin * 256;
  for (int64_t b = 0; b < chunk.end - chunk.begin; ++b, codes += 256, param += minima ? 64 : 32) {
    auto& pair = space.weights[b / 2];
    const int64_t half = b % 2 * 8;
    open_block<minima>(param, codes, pair[0] + half, pair[1] + half);
  }
  seen(&space);
}

INLINE __m512i both_bytes(const int32_t* high, const int32_t* low) {
  return _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high), 8), _mm512_load_si512(low));
}

// A tile of rows whose products were stored.
struct Stored {
  const int32_t (*products)[kTileRows][16];
  const uint8_t* scale_x;  // of its first row
  float* sums;             // of its first row
  int first, rows, done;   // of the product; its height; the first `done` were another tile's
};

// What all tiles of a chunk share.
struct Ends {
  __m512 scale;
  int64_t row_bytes;
  bool begins, ends;
  Sink sink;
};

INLINE void add_row(const Stored& tile, int r, const Ends& chunk) {
  const __m512i high = both_bytes(tile.products[0][r], tile.products[1][r]);
  const __m512i low = both_bytes(tile.products[2][r], tile.products[3][r]);
  const float scale_x = *reinterpret_cast<const float*>(tile.scale_x + r * chunk.row_bytes);
  float* sums = tile.sums + r * 16;
  const __m512 before = chunk.begins ? _mm512_setzero_ps() : _mm512_load_ps(sums);
  const __m512 sum = add_chunk(high, low, chunk.scale, scale_x, before);
  if (chunk.ends) store(sum, tile.first + r, chunk.sink);
  else _mm512_store_ps(sums, sum);
}

// Four products of one tile of rows over a chunk. Meanwhile the last tile's are added up, some rows for
// each pair of blocks.
INLINE void multiply_tile(const uint8_t* x, int64_t pairs, const Stored& last, const Ends& chunk,
                          const Space& space, int32_t (*products)[kTileRows][16]) {
  const int each = static_cast<int>((kTileRows + pairs - 1) / pairs);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  int r = last.done;
  for (int64_t i = 0; i < pairs; ++i, x += 128) {
    _tile_loadd(0, x, chunk.row_bytes);
    _tile_loadd(2, space.weights[i][0], 64);
    _tile_dpbssd(4, 0, 2);
    _tile_loadd(3, space.weights[i][1], 64);
    _tile_dpbsud(5, 0, 3);
    _tile_loadd(1, x + 64, chunk.row_bytes);
    _tile_dpbssd(6, 1, 2);
    _tile_dpbsud(7, 1, 3);
    for (const int end = r + each < last.rows ? r + each : last.rows; r < end; ++r) add_row(last, r, chunk);
  }
  _tile_stored(4, products[0], 64);
  _tile_stored(5, products[1], 64);
  _tile_stored(6, products[2], 64);
  _tile_stored(7, products[3], 64);
  seen(products);
}

template <bool minima>
INLINE void multiply_chunk(const WideProduct& p, const Chunk& chunk, int64_t strip, int64_t rows,
                           Space& space) {
  const int64_t row_bytes = p.shape.row_bytes();
  open_chunk<minima>(p, chunk, space);
  const Ends shared = {_mm512_loadu_ps(p.groups + chunk.group * p.shape.group_bytes() + chunk.index * 64),
                       row_bytes, chunk.begin == 0, chunk.end == p.shape.blocks,
                       wide_sink(p, chunk.group)};
  Stored last = {};
  for (int64_t row = 0, turn = 0; row < rows; row += kTileRows, turn ^= 1) {
    // The last tile reaches back over rows that were done, where there are that many.
    const int64_t most = rows > kTileRows ? rows - kTileRows : 0, first = row < most ? row : most;
    const uint8_t* x = p.x + (strip + first) * row_bytes;
    multiply_tile(x + chunk.begin * 64, (chunk.end - chunk.begin + 1) / 2, last, shared, space,
                  space.products[turn]);
    last = {space.products[turn],
            x + p.shape.row_scales() + chunk.index * 4,
            space.sums[first],
            static_cast<int>(strip + first),
            static_cast<int>(rows < kTileRows ? rows : kTileRows),
            static_cast<int>(row - first)};
  }
  for (int r = last.done; r < last.rows; ++r) add_row(last, r, shared);
}

template <bool minima>
INLINE void multiply_strip(const WideProduct& p, int64_t strip, int64_t rows, Space& space) {
  Chunk chunk;
  for (chunk.group = p.group_begin; chunk.group < p.group_end; ++chunk.group) {
    chunk.begin = 0;
    for (chunk.index = 0; chunk.begin < p.shape.blocks; ++chunk.index, chunk.begin = chunk.end) {
      chunk.end = p.shape.chunk_begin(chunk.index + 1);
      multiply_chunk<minima>(p, chunk, strip, rows, space);
    }
  }
}

template <bool minima>
void many_rows(const WideProduct& p) {
  Space space;
  const int64_t fit = kStripBytes / p.shape.row_bytes() / kTileRows * kTileRows;
  int64_t most = fit < kStripRows ? fit : kStripRows;
  if (most < kTileRows) most = kTileRows;
  const int64_t strips = (p.rows + most - 1) / most;
  shape_tiles(static_cast<int>(p.rows < kTileRows ? p.rows : kTileRows));
  for (int64_t s = 0, row = 0; s < strips; ++s) {
    // All but the last are whole tiles, and no last one is less than a tile.
    const int64_t end = s + 1 == strips ? p.rows : p.rows * (s + 1) / strips / kTileRows * kTileRows;
    multiply_strip<minima>(p, row, end - row, space);
    row = end;
  }
  _tile_release();
}

void multiply(const WideProduct& p) {
  if (p.rows < kLeastRows) return wide_few_rows(p);
  if (p.shape.minima) many_rows<true>(p);
  else many_rows<false>(p);
}

}  // namespace

const WideKernels kWideAmx = {wide_quantize_row_avx512, multiply};

}  // namespace pellucid::matmul
