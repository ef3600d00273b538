// What kernels of attention with factors of bfloat16 share, whatever the instruction set (bf16.inl.h).
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace pellucid {

constexpr int64_t kBf16Strip = 32;                    // queries whose scores are there at once
constexpr int64_t kBf16ScoreStride = kKeyBlock + 16;  // floats
constexpr int64_t kBf16WeightWords = kKeyBlock / 2 + 16;

// Floats of scratch that `attend_bf16` takes.
constexpr int64_t bf16_attention_scratch(int64_t dim) {
  return kItemQueries * (dim / 32 | 1) * 16 + kBf16Strip * (kBf16WeightWords + kBf16ScoreStride + 16 + dim) +
         kKeyBlock * dim;
}

// sums[row][16 column tiles] of `rows` rows of words times `columns` tiles' columns, afresh.
struct TileProduct {
  const uint32_t* rows_words;
  int64_t rows_stride, rows;  // at most kBf16Strip; memory for a multiple of 16 is there
  int64_t blocks;             // of 32 values
  const uint32_t* tiles;
  int64_t tiles_stride, columns;  // words between columns' tiles; those of one follow one another
  float* sums;
  int64_t sums_stride;
};

}  // namespace pellucid
