#include "kernels/matmul/layout.h"

namespace pellucid::matmul {
namespace {

constexpr Layout kLayouts[] = {
    {TensorType::f32, 32, 0, Params::none, 1, 4},
    {TensorType::f16, 16, 0, Params::none, 1, 2},
    {TensorType::bf16, 16, 0, Params::none, 1, 2},
    {TensorType::q4_0, 4, 8, Params::d, 32, 18},
    {TensorType::q4_1, 4, 0, Params::d_m, 32, 20},
    {TensorType::q5_0, 5, 16, Params::d, 32, 22},
    {TensorType::q5_1, 5, 0, Params::d_m, 32, 24},
    {TensorType::q8_0, 8, 128, Params::d, 32, 34},
    {TensorType::q4_k, 4, 0, Params::k_d_m, 256, 144},
    {TensorType::q5_k, 5, 0, Params::k_d_m, 256, 176},
    {TensorType::q6_k, 6, 32, Params::k_d, 256, 210},
};

}  // namespace

int64_t Layout::param_bytes() const {
  switch (params) {
    case Params::none: return 0;
    case Params::d: return kLanes * 2;
    case Params::d_m: return kLanes * 4;
    case Params::k_d_m: return kLanes * 4 + 8 * kLanes * 2;
    case Params::k_d: return kLanes * 2 + 16 * kLanes;
  }
  return 0;
}

int64_t Layout::params_bytes(int64_t k) const {
  const int64_t bytes = k / (is_super() ? 256 : kBlock) * param_bytes();
  return (bytes + 63) / 64 * 64;
}

int64_t Layout::group_bytes(int64_t k) const {
  return params_bytes(k) + (is_float() ? k : k / kBlock) * code_bytes();
}

const Layout* find_layout(TensorType type) {
  for (const Layout& layout : kLayouts)
    if (layout.type == type) return &layout;
  return nullptr;
}

const char* type_name(TensorType type) {
  switch (type) {
    case TensorType::f32: return "f32";
    case TensorType::f16: return "f16";
    case TensorType::bf16: return "bf16";
    case TensorType::q4_0: return "q4_0";
    case TensorType::q4_1: return "q4_1";
    case TensorType::q5_0: return "q5_0";
    case TensorType::q5_1: return "q5_1";
    case TensorType::q8_0: return "q8_0";
    case TensorType::q4_k: return "q4_k";
    case TensorType::q5_k: return "q5_k";
    case TensorType::q6_k: return "q6_k";
  }
  return "unknown";
}

}  // namespace pellucid::matmul
