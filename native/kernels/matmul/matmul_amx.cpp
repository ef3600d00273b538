// AMX: a tile of 16 rows by 16 outputs in one instruction for each block of 32 along K. The same bits
// as matmul_generic.cpp: the integer sum of a block is exact however it is reached, and the sum
// over blocks is done in the order of all others, by AVX-512.
//
// Measured on a two-core Xeon (Emerald Rapids), gcc 12:
//   - A tile's sums can only be read through memory, once a block. That is what costs, not the products. A
//     store right after its product would wait for it, so products are kept two blocks ahead.
//   - While tiles are in use AVX-512 seems to have one port for floats, not two, but still two for
//     integers: so sums are converted by an integer addition and a fused multiply-add (see kMagic).
//     Tiles that start at kMagicBits would save that addition, but loading them costs more.
//   - A load waits for an older store whose address has the same low 12 bits. So a tile's sums and the
//     weights lie apart in these. Copies of the activations laid out likewise make the sums
//     themselves faster by a quarter, but copying takes all of it.
// A block of 16 rows and 16 outputs takes 24 ns, 31 with minima; VNNI needs 40 and 43.
//
// This source must not call inline functions of shared headers: the linker keeps one copy of each,
// and it might be this one.
#include "kernels/matmul/matmul_avx512vnni.inl.h"

namespace pellucid::matmul {
namespace {

constexpr int kTileRows = 16;
constexpr int kChunkBlocks = 20;  // along K, opened at once
constexpr int kChunkRows = 128;   // that read the same opened weights

// Pages whose first quarter is left to the sums of tiles. The last is not used: that is a shift
// instead of a division.
struct alignas(4096) Page {
  int32_t products[kTileRows][kLanes];
  uint8_t weights[4][8][64];  // of four blocks: a byte a code, signed where it has a zero
  uint8_t unused[1024];
};
static_assert(sizeof(Page) == 4096);

// Those that take more than two loads to make.
template <Params params>
constexpr bool kKeptScales = params == Params::k_d_m;

struct Space {
  Page pages[(kChunkBlocks + 3) / 4];
  Scales scales[kChunkBlocks];
  alignas(64) float sums[kChunkRows][kLanes];
  INLINE uint8_t* weights(int b) { return pages[b / 4].weights[b % 4][0]; }
  INLINE auto& products() { return pages[0].products; }
};

// Tiles are loaded behind the compiler's back: what they shall find there must have been written.
INLINE void read_unseen(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// As LDTILECFG reads it.
struct alignas(64) TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

// Tiles 0 and 1 hold 32 values of rows of activations, 2 and 3 weights, 4 and 5 products.
INLINE void shape_tiles() {
  TileShapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 6; ++tile) {
    shapes.row_bytes[tile] = static_cast<uint16_t>(tile < 2 ? 32 : 64);
    shapes.rows[tile] = static_cast<uint8_t>(tile == 2 || tile == 3 ? 8 : kTileRows);
  }
  read_unseen(&shapes);
  _tile_loadconfig(&shapes);
}

// Blocks [begin, begin + count) of a group. What types with a zero have at 128 is a sign bit away from 0.
template <int bits, Params params, bool kSigned>
INLINE void open_blocks(const uint8_t* group, int64_t params_bytes, int64_t begin, int count, Space& space) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(kSigned ? 0x80 : 0));
  const uint8_t* codes = group + params_bytes + begin * 64 * bits;
  for (int b = 0; b < count; ++b, codes += 64 * bits) {
    if constexpr (kKeptScales<params>) space.scales[b] = scales<params, bits>(group, begin + b);
    uint8_t* at = space.weights(b);
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const Steps step = steps<bits>(codes, s);
      _mm512_store_si512(at + 64 * s, _mm512_xor_si512(step.low, flip));
      _mm512_store_si512(at + 64 * s + 256, _mm512_xor_si512(step.high, flip));
    }
  }
  read_unseen(&space);
}

// 16 rows times the opened blocks of a group.
template <int bits, Params params>
struct TileSums {
  static constexpr bool kMinimum = params == Params::d_m || params == Params::k_d_m;

  Space& space;
  const uint8_t* group;
  const ActivationBlock* x;  // of the first row and block
  int64_t stride;            // of rows, in blocks
  int64_t begin;             // the first block
  int last;                  // block, counted from there

  // Blocks past the last are loaded as the last, and never read.
  template <int tile>
  INLINE void load(int b) const {
    b = b < last ? b : last;
    if constexpr (tile == 0) {
      _tile_loadd(0, x + b, stride * 64);
      _tile_loadd(2, space.weights(b), 64);
    } else {
      _tile_loadd(1, x + b, stride * 64);
      _tile_loadd(3, space.weights(b), 64);
    }
  }
  template <int tile>
  INLINE void multiply() const {
    if constexpr (tile == 0) {
      _tile_zero(4);
      if constexpr (kMinimum) _tile_dpbsud(4, 0, 2);
      else _tile_dpbssd(4, 0, 2);
    } else {
      _tile_zero(5);
      if constexpr (kMinimum) _tile_dpbsud(5, 1, 3);
      else _tile_dpbssd(5, 1, 3);
    }
  }
  template <int tile>
  INLINE void store_products() const {
    if constexpr (tile == 0) _tile_stored(4, space.products(), 64);
    else _tile_stored(5, space.products(), 64);
  }

  INLINE Scales scales_of(int b) const {
    if constexpr (kKeptScales<params>) return space.scales[b];
    else return scales<params, bits>(group, begin + b);
  }

  // The stored products are those of block b.
  INLINE void scale(int b, __m512 (&sum)[kTileRows]) const {
    const Scales s = scales_of(b);
    const __m512i magic = _mm512_set1_epi32(kMagicBits);
    const ActivationBlock* row = x + b;
#pragma GCC unroll 4
    for (int four = 0; four < kTileRows; four += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int r = four + i;
        const ActivationBlock& block = row[i * stride];
        const __m512i n = _mm512_add_epi32(_mm512_load_si512(space.products()[r]), magic);
        const __m512 scaled_n = _mm512_fmadd_ps(_mm512_castsi512_ps(n), s.d, s.bias);
        sum[r] = _mm512_fmadd_ps(scaled_n, _mm512_set1_ps(block.scale), sum[r]);
        if constexpr (kMinimum)
          sum[r] = _mm512_fnmadd_ps(s.minus_m, _mm512_set1_ps(block.scaled_sum), sum[r]);
      }
      row += 4 * stride;
      asm("" : "+r"(row));  // or the compiler keeps 16 addresses, more than there are registers
    }
  }

  // Scales the products of block b, stores those of the next, makes those of the third and loads the
  // operands of the fifth.
  template <int tile>
  INLINE void step(int b, __m512 (&sum)[kTileRows]) const {
    scale(b, sum);
    store_products<tile>(), multiply<tile>(), load<tile>(b + 5);
  }

  INLINE void run(__m512 (&sum)[kTileRows]) const {
    load<0>(0), load<1>(1);
    multiply<0>(), load<0>(2);
    multiply<1>(), load<1>(3);
    store_products<0>(), multiply<0>(), load<0>(4);
    int b = 0;
    for (; b + 1 < last; b += 2) step<1>(b, sum), step<0>(b + 1, sum);
    scale(b, sum);
    if (b == last) return;
    store_products<1>();
    scale(last, sum);
  }
};

// What one chunk of rows and K shares.
struct Chunk {
  int64_t group, row, block;  // the last two: the first
  int rows, blocks;
};

template <int bits, Params params>
INLINE void chunk_sums(const TiledProduct& p, const Chunk& c, Space& space) {
  using Sums = TileSums<bits, params>;
  const uint8_t* group = p.groups + c.group * p.group_bytes;
  open_blocks<bits, params, !Sums::kMinimum>(group, p.params_bytes, c.block, c.blocks, space);
  const int64_t first = c.group * kLanes, left = p.n_out - first;
  Sink sink = p.sink;
  sink.out += first;
  if (sink.bias) sink.bias += first;
  sink.lanes = static_cast<int>(left < kLanes ? left : kLanes);
  const bool ends = c.block + c.blocks == p.blocks;
  for (int row = 0; row < c.rows; row += kTileRows) {
    const ActivationBlock* x = p.x + (c.row + row) * p.blocks + c.block;
    const Sums sums{space, group, x, p.blocks, c.block, c.blocks - 1};
    __m512 sum[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r)
      sum[r] = c.block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(space.sums[row + r]);
    sums.run(sum);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      if (ends) store(sum[r], static_cast<int>(c.row) + row + r, sink);
      else _mm512_store_ps(space.sums[row + r], sum[r]);
    }
  }
}

INLINE int at_most(int most, int64_t n) { return n < most ? static_cast<int>(n) : most; }

template <int bits, Params params>
void tiled(const TiledProduct& p) {
  Space space;
  Chunk c;
  shape_tiles();
  const int64_t chunks = (p.blocks + kChunkBlocks - 1) / kChunkBlocks;
  for (c.row = 0; c.row < p.rows; c.row += c.rows) {
    c.rows = at_most(kChunkRows, p.rows - c.row);
    for (c.group = p.group_begin; c.group < p.group_end; ++c.group)
      for (int64_t i = 0; i < chunks; ++i) {
        c.block = p.blocks * i / chunks;
        c.blocks = static_cast<int>(p.blocks * (i + 1) / chunks - c.block);
        chunk_sums<bits, params>(p, c, space);
      }
  }
  _tile_release();
}

template <int bits, Params params>
TileKernel tiles(int least_rows) {
  return {kTileRows, least_rows, tiled<bits, params>};
}

TileKernel tile_kernel(TensorType type) {
  switch (type) {
    case TensorType::q4_0: return tiles<4, Params::d>(32);
    case TensorType::q4_1: return tiles<4, Params::d_m>(32);
    case TensorType::q5_0: return tiles<5, Params::d>(32);
    case TensorType::q5_1: return tiles<5, Params::d_m>(32);
    case TensorType::q8_0: return tiles<8, Params::d>(32);
    case TensorType::q4_k: return tiles<4, Params::k_d_m>(64);
    case TensorType::q5_k: return tiles<5, Params::k_d_m>(64);
    default: return {};  // q6_k, whose halves would need tiles of their own, does not win; nor do floats
  }
}

TypeKernels kernels(TensorType type) {
  TypeKernels found = kAvx512Kernels.kernels(type);
  found.tiles = tile_kernel(type);
  return found;
}

void quantize_row_amx(const float* x, int64_t k, ActivationBlock* blocks) {
  kAvx512Kernels.quantize_row(x, k, blocks);
}

}  // namespace

const KernelSet kAmxKernels = {kernels, quantize_row_amx};

}  // namespace pellucid::matmul
