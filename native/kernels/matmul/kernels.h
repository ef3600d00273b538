// What an instruction set provides: one function per height of a tile.
#pragma once

#include <cstdint>

#include "kernels/matmul/layout.h"

namespace pellucid::matmul {

// A tile is `rows` rows of activations times the 16 outputs of one group.
constexpr int kMaxTileRows = 16;

// Where a tile's sums go: out[r * ldo + lane] = sum (+ bias[lane]) (+ out[r * ldo + lane]).
struct Sink {
  float* out;
  int64_t ldo;
  const float* bias;  // or null
  bool add;
  int lanes;  // outputs that exist, 1 .. 16: nothing else of `out` and `bias` is touched
};

struct BlockTile {
  const uint8_t* params;
  const uint8_t* codes;
  int64_t blocks;            // of 32 along K
  const ActivationBlock* x;  // [rows][blocks]
  int rows;
  Sink sink;
};

struct FloatTile {
  const uint8_t* weights;  // [k][16]
  int64_t k;
  const float* x;  // [rows][k]
  int rows;
  Sink sink;
};

using BlockKernel = void (*)(const BlockTile&);
using FloatKernel = void (*)(const FloatTile&);

// Groups of a weight times many rows at once.
struct TiledProduct {
  const uint8_t* groups;  // all of the weight's
  int64_t group_bytes, params_bytes, group_begin, group_end;
  int64_t blocks;            // of 32 along K
  int64_t n_out;
  const ActivationBlock* x;  // [rows][blocks]
  int64_t rows;
  Sink sink;  // of the weight's first output; its lanes do not count
};

// For processors that have registers for it.
struct TileKernel {
  int rows;  // takes whole multiples of this; 0: there is none
  int64_t least_rows;  // that pay for it
  void (*multiply)(const TiledProduct&);
};

// The kernels of one type: tile[rows] for 1 <= rows <= max_rows; one of the two is filled.
struct TypeKernels {
  int max_rows;
  BlockKernel block[kMaxTileRows + 1];
  FloatKernel floats[kMaxTileRows + 1];
  TileKernel tiles = {};
};

using QuantizeRow = void (*)(const float* x, int64_t k, ActivationBlock* blocks);

// Activations no larger than this make a block of zeros: the reciprocal of a smaller scale may
// overflow, and nothing so small matters beside anything else.
constexpr float kSmallestActivation = 0x1p-100f;

// Heights of tiles, to instantiate kernels by.
template <int...>
struct IntList {};

// The kernels of one instruction set.
struct KernelSet {
  TypeKernels (*kernels)(TensorType type);
  QuantizeRow quantize_row;
};

extern const KernelSet kGenericKernels;
#if defined(__x86_64__)
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;
extern const KernelSet kAmxKernels;
#elif defined(__aarch64__)
extern const KernelSet kNeonKernels;
#endif

// The kernels of a usable instruction set.
const KernelSet& kernel_set(Simd simd);

}  // namespace pellucid::matmul
