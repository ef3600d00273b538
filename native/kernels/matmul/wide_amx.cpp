// Products of 16-bit integers for many rows: weights are opened into bytes, and tiles sum 16 rows by two
// groups of 16 outputs over a whole chunk of K.
//
// Measured on a two-core Xeon (Emerald Rapids), ns for 16 rows, 16 outputs and 32 values: three products,
// loads of their operands and nothing else 11 to 12, of which products alone are 10; with the stores of sums
// half more, with their conversion 17. What makes it so:
//   - A chunk's opened weights of both groups (30 KB) stay in the nearest cache; chunks of 8 pairs of blocks
//     take 21.
//   - Two groups share each load of the rows' bytes, which come from the second-level cache.
//   - A tile's sums are stored while the next tile's products are made, when they have long been ready: a
//     load waits for an older store whose address has the same low 12 bits, and that store for its
//     product. So three pairs of tiles take turns to hold the sums of two groups.
//
// This source must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be this one.
#include "kernels/matmul/wide_avx512vnni.inl.h"

namespace pellucid::matmul {
namespace {

constexpr int kTileRows = 16;
constexpr int kGroups = 2;            // that share a reading of the rows
constexpr int64_t kLeastRows = 9;     // that pay for opening the weights
constexpr int64_t kStripRows = 512;   // that read the same opened weights, at most
constexpr int64_t kStripBytes = 1024 * 1024;  // of their activations, for the second-level cache
constexpr int64_t kPairs = kWideChunk / 2;
constexpr int64_t kTileBytes = 1024;

// A pair of blocks of 16 outputs: high bytes (signed) and low ones of the weights, and the coarse weights.
struct Opened {
  uint8_t high[16][64], low[16][64], coarse[16][64];
};

struct alignas(4096) Space {
  Opened weights[kPairs][kGroups];
  int32_t products[kGroups][2][kTileRows][16];  // of a tile: 256 times the first, and the second
  float sums[kStripRows + kTileRows][kGroups][16];  // strips end on whole tiles
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

// Tile 0 holds activations, 1 weights, the others products.
INLINE void shape_tiles(int rows) {
  TileShapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = static_cast<uint8_t>(tile == 1 ? 16 : rows);
  }
  seen(&shapes);
  _tile_loadconfig(&shapes);
}

// The compiler's own functions take no template parameter for a tile.
template <int tile>
INLINE void load_tile(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(tile));
}
template <int tile>
INLINE void store_tile(void* p) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int tile>
INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
// sums += activations times weights, both signed
template <int sums>
INLINE void multiply_signed() {
  asm volatile("tdpbssd %%tmm1, %%tmm0, %%tmm%c0" : : "i"(sums));
}
// The same with weights without sign.
template <int sums>
INLINE void multiply_unsigned() {
  asm volatile("tdpbsud %%tmm1, %%tmm0, %%tmm%c0" : : "i"(sums));
}

// d or m of each lane in both halves of it.
INLINE __m512i lower_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0xaaaaaaaa, _mm512_slli_epi32(x, 16));
}
INLINE __m512i upper_twice(__m512i x) {
  return _mm512_mask_mov_epi16(x, 0x55555555, _mm512_srli_epi32(x, 16));
}

// Of 16 bits: a weight is code d + base.
struct Line {
  __m512i d, base;
};

template <bool minima>
INLINE Line line_of(__m512i d_m) {
  const __m512i d = lower_twice(d_m), eight_d = _mm512_slli_epi16(d, 3);
  return {d, _mm512_sub_epi16(minima ? upper_twice(d_m) : _mm512_setzero_si512(), eight_d)};
}

INLINE __m512i at(const Line& line, __m512i codes) {
  return _mm512_add_epi16(_mm512_mullo_epi16(codes, line.d), line.base);
}

// 64 weights from their codes, those of even places in `even`, the others in `odd`; they are row s of a
// tile.
INLINE void open_step(__m512i even, __m512i odd, const Line& fine, const Line& coarse, int s, Opened& to) {
  const __m512i upper = _mm512_set1_epi16(static_cast<int16_t>(0xff00));
  constexpr int kChoose = 0xca;  // a ? b : c
  const __m512i a = at(fine, even), b = at(fine, odd);
  _mm512_store_si512(to.high[s], _mm512_ternarylogic_epi32(upper, b, _mm512_srli_epi16(a, 8), kChoose));
  _mm512_store_si512(to.low[s], _mm512_ternarylogic_epi32(upper, _mm512_slli_epi16(b, 8), a, kChoose));
  const __m512i coarse_b = _mm512_slli_epi16(at(coarse, odd), 8);
  _mm512_store_si512(to.coarse[s], _mm512_ternarylogic_epi32(upper, coarse_b, at(coarse, even), kChoose));
}

// `half`: the row of the tile that the block begins at.
template <bool minima>
INLINE void open_block(const uint8_t* param, const uint8_t* codes, int half, Opened& to) {
  const __m512i d_m = wide_params<minima>(param);
  const Line fine = line_of<minima>(d_m), coarse = line_of<minima>(wide_coarse(d_m));
  const __m512i nibble = _mm512_set1_epi16(15);
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    const __m512i v = bytes64(codes + 64 * s);
    open_step(_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi16(v, 8), nibble), fine, coarse,
              half + s, to);
    open_step(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble), _mm512_srli_epi16(v, 12), fine, coarse,
              half + 4 + s, to);
  }
}

// The blocks of one chunk of up to two groups.
struct Chunk {
  int64_t group, index, begin, end;  // the last two: blocks
  int groups;
};

template <bool minima>
INLINE void open_chunk(const WideProduct& p, const Chunk& chunk, Space& space) {
  for (int g = 0; g < chunk.groups; ++g) {
    const uint8_t* group = p.groups + (chunk.group + g) * p.shape.group_bytes();
    const uint8_t* param = group + p.shape.group_params() + chunk.begin * (minima ? 64 : 32);
    const uint8_t* codes = group + p.shape.group_codes() + chunk.begin * 256;
    for (int64_t b = 0; b < chunk.end - chunk.begin; ++b, codes += 256, param += minima ? 64 : 32)
      open_block<minima>(param, codes, static_cast<int>(b % 2) * 8, space.weights[b / 2][g]);
  }
  seen(&space);
}

// Sixteen rows: the first `done` of them were another tile's.
struct Tile {
  const uint8_t* x;        // of its first row
  const uint8_t* scale_x;  // of its first row
  float (*sums)[kGroups][16];
  int first, rows, done;   // the first: of the product
};

// What all tiles of a chunk share.
struct Ends {
  __m512 scale[kGroups];
  Sink sink[kGroups];
  int64_t row_bytes, pairs;
  int groups;
  bool begins, ends;
  bool plain[kGroups];  // the sink takes whole lines, and adds nothing
};

// Rows [row, end) of a tile's products of one group.
struct Run {
  const int32_t (*products)[kTileRows][16];
  const uint8_t* scale_x;
  float (*sums)[kGroups][16];
  int first, row, end;
};

// Without branches for what a chunk's place in K decides. `plain`: whole lines of outputs, nothing added.
template <bool begins, bool ends, bool plain>
INLINE void add_run(const Run& run, const Ends& chunk, int group) {
  const __m512 scale = chunk.scale[group];
  const int64_t row_bytes = chunk.row_bytes;
  const uint8_t* scale_x = run.scale_x + run.row * row_bytes;
  const Sink& sink = chunk.sink[group];
  float* out = sink.out + (run.first + run.row) * sink.ldo;
  for (int r = run.row; r < run.end; ++r, scale_x += row_bytes, out += sink.ldo) {
    const __m512i n = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(run.products[0][r]), 8),
                                       _mm512_load_si512(run.products[1][r]));
    float* sums = run.sums[r][group];
    const __m512 before = begins ? _mm512_setzero_ps() : _mm512_load_ps(sums);
    const __m512 sum = add_chunk(n, scale, *reinterpret_cast<const float*>(scale_x), before);
    if constexpr (!ends) _mm512_store_ps(sums, sum);
    else if constexpr (plain) _mm512_storeu_ps(out, sum);
    else store(sum, run.first + r, sink);
  }
}

// Adds up the products of a tile's rows, some at a time.
struct Adding {
  const Space& space;
  const Ends& chunk;
  Tile tile;
  int group, row;

  INLINE void add(int count) {
    while (count > 0 && group < chunk.groups) {
      const int end = row + count < tile.rows ? row + count : tile.rows;
      add_rows({space.products[group], tile.scale_x, tile.sums, tile.first, row, end});
      count -= end - row;
      row = end;
      if (row == tile.rows) row = tile.done, ++group;
    }
  }

  INLINE void add_rows(const Run& run) const {
    if (!chunk.ends) {
      if (chunk.begins) add_run<true, false, false>(run, chunk, group);
      else add_run<false, false, false>(run, chunk, group);
    } else if (!chunk.plain[group]) {
      if (chunk.begins) add_run<true, true, false>(run, chunk, group);
      else add_run<false, true, false>(run, chunk, group);
    } else {
      if (chunk.begins) add_run<true, true, true>(run, chunk, group);
      else add_run<false, true, true>(run, chunk, group);
    }
  }
};

// Which tiles hold the sums of this tile's groups, and of the last one's: each is the first of two.
// Those of the last one's first group become those of this one's second.
template <int turn>
struct Sums {
  static constexpr int first = turn == 0 ? 2 : turn == 1 ? 6 : 4;
  static constexpr int second = turn == 0 ? 4 : turn == 1 ? 2 : 6;
  static constexpr int last_first = second, last_second = turn == 0 ? 6 : turn == 1 ? 4 : 2;
};

template <int tile>
INLINE void store_sums(int32_t (*products)[kTileRows][16]) {
  store_tile<tile>(products[0]);
  store_tile<tile + 1>(products[1]);
}

template <int tile>
INLINE void multiply_coarse(const Opened& weights) {
  load_tile<1>(weights.coarse, 64), multiply_signed<tile + 1>();
}
template <int tile>
INLINE void multiply_fine(const Opened& weights) {
  load_tile<1>(weights.high, 64), multiply_signed<tile>();
  load_tile<1>(weights.low, 64), multiply_unsigned<tile + 1>();
}

// The products of one tile of rows over a chunk. Meanwhile the last tile's are stored and added up.
template <bool both, int turn>
INLINE void multiply_tile(const uint8_t* x, const Ends& chunk, Space& space, bool has_last, Adding& last) {
  using Of = Sums<turn>;
  const int64_t stride = chunk.row_bytes;
  const auto& first = space.weights[0];
  zero_tile<Of::first>(), zero_tile<Of::first + 1>();
  load_tile<0>(x, stride);
  multiply_fine<Of::first>(first[0]);
  if (has_last) store_sums<Of::last_first>(space.products[0]);
  if constexpr (both) {
    zero_tile<Of::second>(), zero_tile<Of::second + 1>();
    multiply_fine<Of::second>(first[1]);
  }
  load_tile<0>(x + 64, stride);
  multiply_coarse<Of::first>(first[0]);
  if constexpr (both) {
    multiply_coarse<Of::second>(first[1]);
    if (has_last) store_sums<Of::last_second>(space.products[1]);
  }
  seen(&space);
  const int each = chunk.pairs > 1 ? static_cast<int>((kGroups * kTileRows + chunk.pairs - 2) / (chunk.pairs - 1)) : 0;
  for (int64_t i = 1; i < chunk.pairs; ++i) {
    const auto& weights = space.weights[i];
    x += 128;
    load_tile<0>(x + 64, stride);
    multiply_coarse<Of::first>(weights[0]);
    if constexpr (both) multiply_coarse<Of::second>(weights[1]);
    load_tile<0>(x, stride);
    multiply_fine<Of::first>(weights[0]);
    if constexpr (both) multiply_fine<Of::second>(weights[1]);
    if (has_last) last.add(each);
  }
  if (has_last) last.add(kGroups * kTileRows);
}

template <bool both, int turn>
INLINE void store_last(Space& space) {
  store_sums<Sums<turn>::first>(space.products[0]);
  if constexpr (both) store_sums<Sums<turn>::second>(space.products[1]);
  seen(&space);
}

template <bool both>
INLINE void multiply_rows(const WideProduct& p, const Chunk& chunk, const Ends& shared, int64_t strip,
                          int64_t rows, Space& space) {
  Adding last = {space, shared, {}, shared.groups, 0};
  int turn = 0;
  for (int64_t row = 0; row < rows; row += kTileRows) {
    // The last tile reaches back over rows that were done, where there are that many.
    const int64_t most = rows > kTileRows ? rows - kTileRows : 0, first = row < most ? row : most;
    const uint8_t* x = p.x + (strip + first) * shared.row_bytes;
    const Tile tile = {x + chunk.begin * 64,
                       x + p.shape.row_scales() + chunk.index * 4,
                       space.sums + first,
                       static_cast<int>(strip + first),
                       static_cast<int>(rows < kTileRows ? rows : kTileRows),
                       static_cast<int>(row - first)};
    turn = row == 0 ? 0 : turn == 2 ? 0 : turn + 1;
    switch (turn) {
      case 0: multiply_tile<both, 0>(tile.x, shared, space, row > 0, last); break;
      case 1: multiply_tile<both, 1>(tile.x, shared, space, row > 0, last); break;
      default: multiply_tile<both, 2>(tile.x, shared, space, row > 0, last); break;
    }
    last.tile = tile;
    last.group = 0;
    last.row = tile.done;
  }
  switch (turn) {
    case 0: store_last<both, 0>(space); break;
    case 1: store_last<both, 1>(space); break;
    default: store_last<both, 2>(space); break;
  }
  last.add(kGroups * kTileRows);
}

template <bool minima>
INLINE void multiply_chunk(const WideProduct& p, const Chunk& chunk, int64_t strip, int64_t rows,
                           Space& space) {
  open_chunk<minima>(p, chunk, space);
  Ends shared;
  shared.groups = chunk.groups;
  for (int g = 0; g < chunk.groups; ++g) {
    shared.scale[g] = _mm512_loadu_ps(p.groups + (chunk.group + g) * p.shape.group_bytes() + chunk.index * 64);
    const Sink sink = wide_sink(p, chunk.group + g);
    shared.sink[g] = sink;
    shared.plain[g] = sink.bias == nullptr && !sink.add && sink.lanes == 16;
  }
  shared.row_bytes = p.shape.row_bytes();
  shared.pairs = (chunk.end - chunk.begin + 1) / 2;
  shared.begins = chunk.begin == 0;
  shared.ends = chunk.end == p.shape.blocks;
  if (chunk.groups == 2) multiply_rows<true>(p, chunk, shared, strip, rows, space);
  else multiply_rows<false>(p, chunk, shared, strip, rows, space);
}

template <bool minima>
INLINE void multiply_strip(const WideProduct& p, int64_t strip, int64_t rows, Space& space) {
  Chunk chunk;
  for (chunk.group = p.group_begin; chunk.group < p.group_end; chunk.group += chunk.groups) {
    chunk.groups = p.group_end - chunk.group < kGroups ? 1 : kGroups;
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
