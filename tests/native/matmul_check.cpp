// Every usable instruction set against the generic twin, by bits, with buffers of exactly the sizes
// promised: a program of its own, so that it also runs under an emulator and under sanitizers.
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul/layout.h"

namespace {

using namespace pellucid;

std::mt19937 engine(1);

// Values a half below 2, of both signs.
uint16_t random_half() { return static_cast<uint16_t>((engine() & 0x83ff) | 0x2000); }
float random_float() { return std::normal_distribution<float>()(engine); }

// Where the halves are in a block of a type; other bytes may hold anything.
std::vector<int> halves(TensorType type) {
  switch (type) {
    case TensorType::f16: return {0};
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k: return {0, 2};
    case TensorType::q6_k: return {208};
    default: return {0};
  }
}

std::vector<uint8_t> random_weight(const matmul::Layout& layout, int64_t n, int64_t k) {
  const int64_t blocks = n * k / layout.raw_elements;
  std::vector<uint8_t> raw(static_cast<size_t>(blocks * layout.raw_bytes));
  for (uint8_t& byte : raw) byte = static_cast<uint8_t>(engine());
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* block = raw.data() + b * layout.raw_bytes;
    if (layout.type == TensorType::f32 || layout.type == TensorType::bf16) {
      const float value = random_float();  // the upper bytes of a float are a bfloat
      std::memcpy(block, reinterpret_cast<const char*>(&value) + 4 - layout.raw_bytes,
                  static_cast<size_t>(layout.raw_bytes));
      continue;
    }
    for (int at : halves(layout.type)) {
      const uint16_t half = random_half();
      std::memcpy(block + at, &half, 2);
    }
  }
  return raw;
}

std::vector<float> product(const matmul::Layout& layout, const std::vector<uint8_t>& raw, int64_t n,
                           int64_t k, const std::vector<float>& x, const std::vector<float>& bias,
                           std::vector<float> out, Simd simd) {
  WeightArena arena;
  Pool pool(1);
  const auto weight =
      std::move(pack_weights({{layout.type, raw.data(), n, k, false}}, simd, arena, pool).front());
  const auto rows = static_cast<int64_t>(x.size()) / k;
  std::vector<ActivationBlock> blocks(static_cast<size_t>(rows * (k / kBlock)));
  for (int64_t r = 0; r < rows && !layout.is_float(); ++r)
    quantize_row(x.data() + r * k, k, blocks.data() + r * (k / kBlock), simd);
  weight->multiply({rows, k, x.data(), blocks.data()}, bias.data(), out.data(), n, true, 0,
                   weight->n_groups());
  return out;
}

int check(TensorType type, Simd simd) {
  const matmul::Layout& layout = *matmul::find_layout(type);
  int wrong = 0;
  for (const int64_t n : {1, 13, 16, 39})
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 83}) {
      const int64_t k = layout.is_float() ? 7 + rows : layout.is_super() || rows > 13 ? 768 : 96;
      const auto raw = random_weight(layout, n, k);
      std::vector<float> x(static_cast<size_t>(rows * k)), bias(static_cast<size_t>(n)),
          onto(static_cast<size_t>(rows * n));
      for (auto* values : {&x, &bias, &onto})
        for (float& value : *values) value = random_float();
      const auto ours = product(layout, raw, n, k, x, bias, onto, simd);
      const auto twin = product(layout, raw, n, k, x, bias, onto, Simd::generic);
      wrong += std::memcmp(ours.data(), twin.data(), ours.size() * sizeof(float)) != 0;
    }
  std::printf("%s %s: %d wrong\n", std::string(simd_name(simd)).c_str(), matmul::type_name(type), wrong);
  return wrong;
}

}  // namespace

// An argument names the instruction set that must be among those checked.
int main(int argc, char** argv) {
  int wrong = 0;
  bool met = argc < 2;
  for (const SimdChoice& choice : simd_considered()) {
    if (!choice.usable) continue;
    met = met || simd_name(choice.simd) == argv[1];
    for (const auto type :
         {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q4_0, TensorType::q4_1,
          TensorType::q5_0, TensorType::q5_1, TensorType::q8_0, TensorType::q4_k, TensorType::q5_k,
          TensorType::q6_k})
      wrong += check(type, choice.simd);
  }
  if (!met) std::printf("%s is not usable here\n", argv[1]);
  return wrong || !met;
}
