#include "kernels/embedding/embedding.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "core/half.h"

namespace pellucid {
namespace {

float half_at(const uint8_t* p) {
  Half h;
  std::memcpy(&h, p, 2);
  return from_half(h);
}

void f32_row(const uint8_t* p, int64_t k, float* y) { std::memcpy(y, p, sizeof(float) * k); }

void f16_row(const uint8_t* p, int64_t k, float* y) {
  for (int64_t i = 0; i < k; ++i) y[i] = half_at(p + 2 * i);
}

void bf16_row(const uint8_t* p, int64_t k, float* y) {
  for (int64_t i = 0; i < k; ++i) {
    const uint32_t bits = static_cast<uint32_t>(p[2 * i]) << 16 | static_cast<uint32_t>(p[2 * i + 1]) << 24;
    std::memcpy(y + i, &bits, 4);
  }
}

// Q4_0 Q4_1 Q5_0 Q5_1: blocks of 32, the low nibbles of 16 bytes first, then the high ones. A fifth
// bit is in the 32 bits before them; a minimum follows the scale, or the codes are centred.
template <bool Fifth, bool Minimum>
void nibble_row(const uint8_t* p, int64_t k, float* y) {
  constexpr float kCentre = Minimum ? 0.0f : Fifth ? 16.0f : 8.0f;
  for (int64_t b = 0; b < k / 32; ++b, y += 32) {
    const float d = half_at(p);
    const float m = Minimum ? half_at(p + 2) : 0.0f;
    p += Minimum ? 4 : 2;
    uint32_t fifth = 0;
    if (Fifth) {
      std::memcpy(&fifth, p, 4);
      p += 4;
    }
    for (int i = 0; i < 32; ++i) {
      const int nibble = i < 16 ? p[i] & 15 : p[i - 16] >> 4;
      const int code = nibble | static_cast<int>(fifth >> i & 1u) << 4;
      const float value = d * (static_cast<float>(code) - kCentre);
      y[i] = Minimum ? value + m : value;
    }
    p += 16;
  }
}

void q8_0_row(const uint8_t* p, int64_t k, float* y) {
  for (int64_t b = 0; b < k / 32; ++b, p += 34, y += 32) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<int8_t>(p[2 + i]));
  }
}

// The j-th of 8 six-bit scales and minima in 12 bytes.
void k_scale(const uint8_t* packed, int j, float* scale, float* minimum) {
  int s, m;
  if (j < 4) {
    s = packed[j] & 63;
    m = packed[j + 4] & 63;
  } else {
    s = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
    m = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
  }
  *scale = static_cast<float>(s);
  *minimum = static_cast<float>(m);
}

// Q4_K and Q5_K: 256 values in 8 groups of 32, two groups sharing 32 bytes of nibbles.
template <bool Fifth>
void k_row(const uint8_t* p, int64_t k, float* y) {
  for (int64_t b = 0; b < k / 256; ++b, p += Fifth ? 176 : 144) {
    const float d = half_at(p), dmin = half_at(p + 2);
    const uint8_t* high = p + 16;
    const uint8_t* low = p + (Fifth ? 48 : 16);
    for (int g = 0; g < 8; ++g, y += 32) {
      float s, m;
      k_scale(p + 4, g, &s, &m);
      const float scale = d * s, minimum = dmin * m;
      for (int i = 0; i < 32; ++i) {
        const int nibble = low[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
        const int code = Fifth ? nibble | (high[i] >> g & 1) << 4 : nibble;
        y[i] = scale * static_cast<float>(code) - minimum;
      }
    }
  }
}

// Q6_K: 256 values in 16 groups of 16 around 32.
void q6_k_row(const uint8_t* p, int64_t k, float* y) {
  for (int64_t b = 0; b < k / 256; ++b, p += 210, y += 256) {
    const float d = half_at(p + 208);
    for (int i = 0; i < 256; ++i) {
      const int part = i / 128, within = i % 128;
      const int nibble = p[part * 64 + within % 64] >> (within / 64 * 4) & 15;
      const int top = p[128 + part * 32 + within % 32] >> (within / 32 * 2) & 3;
      const float scale = d * static_cast<float>(static_cast<int8_t>(p[192 + i / 16]));
      y[i] = scale * (static_cast<float>(nibble | top << 4) - 32.0f);
    }
  }
}

struct Reader {
  TensorType type;
  int64_t elements, bytes;
  void (*dequantize)(const uint8_t*, int64_t, float*);
};
constexpr Reader kReaders[] = {
    {TensorType::f32, 1, 4, f32_row},
    {TensorType::f16, 1, 2, f16_row},
    {TensorType::bf16, 1, 2, bf16_row},
    {TensorType::q4_0, 32, 18, nibble_row<false, false>},
    {TensorType::q4_1, 32, 20, nibble_row<false, true>},
    {TensorType::q5_0, 32, 22, nibble_row<true, false>},
    {TensorType::q5_1, 32, 24, nibble_row<true, true>},
    {TensorType::q8_0, 32, 34, q8_0_row},
    {TensorType::q4_k, 256, 144, k_row<false>},
    {TensorType::q5_k, 256, 176, k_row<true>},
    {TensorType::q6_k, 256, 210, q6_k_row},
};

}  // namespace

EmbeddingTable::EmbeddingTable(TensorType type, const uint8_t* raw, int64_t bytes, int64_t n_rows,
                               int64_t k)
    : raw_(raw), n_rows_(n_rows), k_(k) {
  for (const Reader& reader : kReaders) {
    if (reader.type != type) continue;
    if (n_rows < 1 || k < 1 || k % reader.elements != 0)
      throw std::invalid_argument("embedding table (" + std::to_string(n_rows) + ", " +
                                  std::to_string(k) + "): rows must be whole blocks of " +
                                  std::to_string(reader.elements));
    row_bytes_ = k / reader.elements * reader.bytes;
    dequantize_ = reader.dequantize;
  }
  if (dequantize_ == nullptr)
    throw std::invalid_argument("embedding table: type " + std::to_string(static_cast<int>(type)) +
                                " cannot be read by rows");
  if (bytes % row_bytes_ != 0 || bytes / row_bytes_ != n_rows)
    throw std::invalid_argument("embedding table: " + std::to_string(bytes) + " bytes are not " +
                                std::to_string(n_rows) + " rows of " + std::to_string(row_bytes_));
}

void EmbeddingTable::row(int64_t i, float* y) const { dequantize_(raw_ + i * row_bytes_, k_, y); }

}  // namespace pellucid
