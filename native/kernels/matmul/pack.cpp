#include "kernels/matmul/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pellucid::matmul {
namespace {

// Blocks as they lie in a GGUF file (little endian, no padding): d, m, dmin are binary16.
struct Q4_0 { uint8_t d[2], qs[16]; };
struct Q4_1 { uint8_t d[2], m[2], qs[16]; };
struct Q5_0 { uint8_t d[2], qh[4], qs[16]; };
struct Q5_1 { uint8_t d[2], m[2], qh[4], qs[16]; };
struct Q8_0 { uint8_t d[2], qs[32]; };
struct Q4_K { uint8_t d[2], dmin[2], scales[12], qs[128]; };
struct Q5_K { uint8_t d[2], dmin[2], scales[12], qh[32], qs[128]; };
struct Q6_K { uint8_t ql[128], qh[64], scales[16], d[2]; };
static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22 && sizeof(Q5_1) == 24);
static_assert(sizeof(Q8_0) == 34 && sizeof(Q4_K) == 144 && sizeof(Q5_K) == 176 && sizeof(Q6_K) == 210);

static_assert(std::endian::native == std::endian::little, "words of codes are taken as in the file");

using Codes = uint8_t[kBlock];

// Low halves of 16 bytes, then high halves.
void nibbles(const uint8_t* qs, Codes& codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 15;
    codes[16 + i] = qs[i] >> 4;
  }
}

// Bit i of qh is the fifth of code i. Eight bits at a time: copies of a byte keep bit i in byte i,
// and adding 127 carries it to the top.
void fifth_bits(const uint8_t* qh, Codes& codes) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t apart = qh[i] * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t bits = (apart + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, 8);
    eight |= bits << 4;
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

// Codes of block `sub` (of 8) of a k type: 64 values share 32 bytes, the first 32 their low halves.
void super_nibbles(const uint8_t* qs, int sub, Codes& codes) {
  for (int i = 0; i < kBlock; ++i) codes[i] = qs[sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
}

void decode(const Q4_0& b, int, Codes& codes) { nibbles(b.qs, codes); }
void decode(const Q4_1& b, int, Codes& codes) { nibbles(b.qs, codes); }
void decode(const Q5_0& b, int, Codes& codes) {
  nibbles(b.qs, codes);
  fifth_bits(b.qh, codes);
}
void decode(const Q5_1& b, int, Codes& codes) {
  nibbles(b.qs, codes);
  fifth_bits(b.qh, codes);
}
void decode(const Q8_0& b, int, Codes& codes) {
  for (int i = 0; i < kBlock; ++i) codes[i] = b.qs[i] ^ 0x80;
}
void decode(const Q4_K& b, int sub, Codes& codes) { super_nibbles(b.qs, sub, codes); }
void decode(const Q5_K& b, int sub, Codes& codes) {
  super_nibbles(b.qs, sub, codes);
  for (int i = 0; i < kBlock; ++i) codes[i] |= (b.qh[i] >> sub & 1) << 4;
}
// Each half of 128 values: four runs of 32, the low bits of runs 0 and 2, and of 1 and 3, sharing bytes.
void decode(const Q6_K& b, int sub, Codes& codes) {
  const int half = sub / 4, run = sub % 4;
  const uint8_t* low = b.ql + 64 * half + 32 * (run % 2);
  const uint8_t* high = b.qh + 32 * half;
  for (int i = 0; i < kBlock; ++i)
    codes[i] = (low[i] >> run / 2 * 4 & 15) | (high[i] >> 2 * run & 3) << 4;
}

// The `width` bits above the low four, of `steps` steps of four codes, side by side in four bytes.
void place_high(const uint8_t* codes, int steps, int width, uint8_t* at) {
  uint32_t all = 0;
  for (int step = 0; step < steps; ++step) {
    uint32_t four;
    std::memcpy(&four, codes + 4 * step, 4);
    all |= (four >> 4 & (width == 1 ? 0x01010101u : 0x03030303u)) << step * width;
  }
  std::memcpy(at, &all, 4);
}

// Codes of one lane into a block; see layout.h.
void place_codes(int bits, const Codes& codes, int lane, uint8_t* block) {
  for (int step = 0; step < 4; ++step) {
    uint8_t* at = block + 64 * step + 4 * lane;
    if (bits == 8) {
      std::memcpy(at, codes + 4 * step, 4);
      std::memcpy(at + 256, codes + 16 + 4 * step, 4);
      continue;
    }
    for (int t = 0; t < 4; ++t)
      at[t] = static_cast<uint8_t>((codes[4 * step + t] & 15) | codes[16 + 4 * step + t] << 4);
  }
  if (bits == 5) place_high(codes, 8, 1, block + 256 + 4 * lane);
  if (bits == 6) {
    place_high(codes, 4, 2, block + 256 + 4 * lane);
    place_high(codes + 16, 4, 2, block + 320 + 4 * lane);
  }
}

void place_half(const uint8_t (&half)[2], int lane, uint8_t* at) { std::memcpy(at + 2 * lane, half, 2); }

template <class Block>
void place_params(const Block& b, int lane, uint8_t* p) {
  place_half(b.d, lane, p);
  if constexpr (requires { b.m; }) place_half(b.m, lane, p + 2 * kLanes);
}

// Eight 6-bit scales and minima. The first four of each: low 6 bits of bytes 0-3 and 4-7. The last
// four: low 4 bits in bytes 8-11 (scale below, minimum above), high 2 bits above the first four.
template <class Block>
  requires(sizeof(Block::scales) == 12)
void place_params(const Block& b, int lane, uint8_t* p) {
  place_half(b.d, lane, p);
  place_half(b.dmin, lane, p + 2 * kLanes);
  const uint8_t* s = b.scales;
  uint8_t* out = p + 4 * kLanes + lane;
  for (int i = 0; i < 4; ++i) {
    out[2 * i * kLanes] = s[i] & 63;
    out[(2 * i + 1) * kLanes] = s[4 + i] & 63;
    out[2 * (i + 4) * kLanes] = static_cast<uint8_t>((s[8 + i] & 15) | s[i] >> 6 << 4);
    out[(2 * (i + 4) + 1) * kLanes] = static_cast<uint8_t>(s[8 + i] >> 4 | s[4 + i] >> 6 << 4);
  }
}

void place_params(const Q6_K& b, int lane, uint8_t* p) {
  place_half(b.d, lane, p);
  for (int i = 0; i < 16; ++i) p[2 * kLanes + i * kLanes + lane] = b.scales[i];
}

template <class Block>
void pack_row(const Layout& layout, const uint8_t* raw, int64_t k, int lane, uint8_t* group) {
  uint8_t* codes = group + layout.params_bytes(k);
  const int subs = static_cast<int>(layout.raw_elements / kBlock);
  for (int64_t b = 0; b < k / layout.raw_elements; ++b) {
    Block block;
    std::memcpy(&block, raw + b * static_cast<int64_t>(sizeof block), sizeof block);
    place_params(block, lane, group + b * layout.param_bytes());
    for (int sub = 0; sub < subs; ++sub, codes += layout.code_bytes()) {
      Codes unpacked;
      decode(block, sub, unpacked);
      place_codes(layout.bits, unpacked, lane, codes);
    }
  }
}

void pack_float_row(int bytes, const uint8_t* raw, int64_t k, int lane, uint8_t* group) {
  for (int64_t i = 0; i < k; ++i)
    std::memcpy(group + (i * kLanes + lane) * bytes, raw + i * bytes, static_cast<size_t>(bytes));
}

void pack_any_row(const Layout& layout, const uint8_t* raw, int64_t k, int lane, uint8_t* group) {
  switch (layout.type) {
    case TensorType::f32: return pack_float_row(4, raw, k, lane, group);
    case TensorType::f16:
    case TensorType::bf16: return pack_float_row(2, raw, k, lane, group);
    case TensorType::q4_0: return pack_row<Q4_0>(layout, raw, k, lane, group);
    case TensorType::q4_1: return pack_row<Q4_1>(layout, raw, k, lane, group);
    case TensorType::q5_0: return pack_row<Q5_0>(layout, raw, k, lane, group);
    case TensorType::q5_1: return pack_row<Q5_1>(layout, raw, k, lane, group);
    case TensorType::q8_0: return pack_row<Q8_0>(layout, raw, k, lane, group);
    case TensorType::q4_k: return pack_row<Q4_K>(layout, raw, k, lane, group);
    case TensorType::q5_k: return pack_row<Q5_K>(layout, raw, k, lane, group);
    case TensorType::q6_k: return pack_row<Q6_K>(layout, raw, k, lane, group);
  }
}

}  // namespace

void pack_group(const Layout& layout, const uint8_t* raw, int64_t n_out, int64_t k, int64_t g,
                uint8_t* group) {
  const int64_t row_bytes = k / layout.raw_elements * layout.raw_bytes;
  const int lanes = static_cast<int>(std::min(kLanes, n_out - g * kLanes));
  std::memset(group, 0, static_cast<size_t>(layout.group_bytes(k)));
  for (int lane = 0; lane < lanes; ++lane)
    pack_any_row(layout, raw + (g * kLanes + lane) * row_bytes, k, lane, group);
}

}  // namespace pellucid::matmul
