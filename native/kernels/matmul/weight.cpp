#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "kernels/matmul/kernels.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/bf16.h"
#include "kernels/matmul/weight.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace pellucid {
namespace matmul {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

const char* kind_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::int8: return "int8 blocks";
    case ActivationKind::bf16: return "bf16 rows";
    case ActivationKind::f32: return "f32 rows";
  }
  return "?";
}

bool has(const Activations& x, ActivationKind kind) {
  switch (kind) {
    case ActivationKind::int8: return x.blocks != nullptr;
    case ActivationKind::bf16: return x.bf16 != nullptr;
    case ActivationKind::f32: return x.f32 != nullptr;
  }
  return false;
}

int64_t checked_product(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw std::bad_alloc();
  return product;
}

// Activations of a strip of rows are read once for each group; they should stay in the second-level
// cache beside the group.
constexpr int64_t kStripBytes = 512 * 1024;

class LaidOutWeight final : public LoadedWeight {
 public:
  LaidOutWeight(const Layout& layout, int64_t n_out_, int64_t k_, Simd simd_, WeightArena& arena)
      : layout_(layout), kernels_(kernel_set(simd_).kernels(layout.type)) {
    n_out = n_out_;
    k = k_;
    type = layout.type;
    activations = layout.is_float() ? ActivationKind::f32 : ActivationKind::int8;
    simd = simd_;
    group = kLanes;
    group_bytes_ = layout.group_bytes(k);
    data_ = arena.allocate(bytes());
  }

  // Fills groups [begin, end) from the rows at `raw`.
  void pack(const uint8_t* raw, int64_t begin, int64_t end) override {
    for (int64_t g = begin; g < end; ++g)
      pack_group(layout_, raw, n_out, k, g, data_.get() + g * group_bytes_);
  }

  size_t bytes() const override {
    return static_cast<size_t>(checked_product(n_groups(), group_bytes_));
  }

  void multiply(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                int64_t group_begin, int64_t group_end) const override {
    check(x, ldo, group_begin, group_end);
    const int64_t row_bytes = layout_.is_float() ? k * 4 : k / kBlock * 64;
    const int64_t tiled = multiply_tiled(x, bias, out, ldo, add, group_begin, group_end);
    const int64_t max_rows = kernels_.max_rows;
    const int64_t strip = std::max<int64_t>(kStripBytes / row_bytes / max_rows, 1) * max_rows;
    for (int64_t row = tiled; row < x.rows; row += strip)
      for (int64_t g = group_begin; g < group_end; ++g)
        multiply_strip(x, row, std::min(strip, x.rows - row), g, bias, out, ldo, add);
  }

 private:
  // The first rows, as many as tiles are worth while for. Returns how many.
  int64_t multiply_tiled(const Activations& x, const float* bias, float* out, int64_t ldo, bool add,
                         int64_t group_begin, int64_t group_end) const {
    const TileKernel& tiles = kernels_.tiles;
    if (!tiles.rows || x.rows < tiles.least_rows) return 0;
    const int64_t rows = x.rows / tiles.rows * tiles.rows;
    tiles.multiply({data_.get(), group_bytes_, layout_.params_bytes(k), group_begin, group_end,
                    k / kBlock, n_out, x.blocks, rows, {out, ldo, bias, add, 0}});
    return rows;
  }

  // One group times rows [row, row + rows), in tiles as even as can be.
  void multiply_strip(const Activations& x, int64_t row, int64_t rows, int64_t g, const float* bias,
                      float* out, int64_t ldo, bool add) const {
    const int64_t o = g * kLanes;
    const uint8_t* data = data_.get() + g * group_bytes_;
    const int lanes = static_cast<int>(std::min(kLanes, n_out - o));
    const int64_t tiles = (rows + kernels_.max_rows - 1) / kernels_.max_rows;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = row + rows * t / tiles;
      const int height = static_cast<int>(row + rows * (t + 1) / tiles - first);
      const Sink sink{out + first * ldo + o, ldo, bias ? bias + o : nullptr, add, lanes};
      if (layout_.is_float()) {
        kernels_.floats[height]({data, k, x.f32 + first * k, height, sink});
      } else {
        const int64_t blocks = k / kBlock;
        const uint8_t* codes = data + layout_.params_bytes(k);
        kernels_.block[height]({data, codes, blocks, x.blocks + first * blocks, height, sink});
      }
    }
  }

  Layout layout_;
  TypeKernels kernels_;
  int64_t group_bytes_ = 0;
  std::shared_ptr<uint8_t> data_;
};

std::unique_ptr<LoadedWeight> lay_out(const RawWeight& from, Simd simd, WeightArena& arena) {
  const Layout* layout = find_layout(from.type);
  if (!layout) refuse("no kernels for weights of type " + std::to_string(static_cast<int>(from.type)));
  if (from.n_out <= 0) refuse("weight has n_out = " + std::to_string(from.n_out));
  if (from.k <= 0 || from.k % layout->raw_elements)
    refuse("weight has k = " + std::to_string(from.k) + ", which is no multiple of the " +
           std::to_string(layout->raw_elements) + " values in a block of " + type_name(from.type));
  if (from.n_out > INT64_MAX / 64 / from.k) throw std::bad_alloc();
  if (from.bf16 && can_be_bf16(from.type)) return bf16_weight(*layout, from, simd, arena);
  return std::make_unique<LaidOutWeight>(*layout, from.n_out, from.k, simd, arena);
}

// What a thread packs at a time: large beside the cost of handing it out and of giving pages back,
// small beside a weight.
constexpr int64_t kPieceBytes = 512 * 1024;

struct Piece {
  LoadedWeight* weight;
  const RawWeight* from;
  int64_t begin, end;  // groups
};

void add_pieces(LoadedWeight& weight, const RawWeight& from, std::vector<Piece>& pieces) {
  const int64_t groups = weight.n_groups();
  const int64_t group_bytes = static_cast<int64_t>(weight.bytes()) / groups;
  const int64_t step = std::max<int64_t>(kPieceBytes / group_bytes, 1);
  for (int64_t g = 0; g < groups; g += step)
    pieces.push_back({&weight, &from, g, std::min(g + step, groups)});
}

// Gives the whole pages within the bytes back; reading them again loads them from the file.
void give_back(const uint8_t* begin, const uint8_t* end) {
#if defined(__linux__)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#else
  (void)begin, (void)end;
#endif
}

int64_t row_bytes(const RawWeight& weight) {
  const Layout& layout = *find_layout(weight.type);
  return weight.k / layout.raw_elements * layout.raw_bytes;
}

void pack(const Piece& piece) {
  const RawWeight& from = *piece.from;
  piece.weight->pack(from.raw, piece.begin, piece.end);
  if (!from.mapped) return;
  const int64_t row = row_bytes(from);
  give_back(from.raw + piece.begin * kLanes * row,
            from.raw + std::min(piece.end * kLanes, from.n_out) * row);
}

}  // namespace

void LoadedWeight::check(const Activations& x, int64_t ldo, int64_t group_begin, int64_t group_end) const {
  if (x.k != k)
    refuse("activations have k = " + std::to_string(x.k) + ", the weight k = " + std::to_string(k));
  if (x.rows < 0) refuse("activations have rows = " + std::to_string(x.rows));
  if (!has(x, activations))
    refuse(std::string("activations lack the ") + kind_name(activations) + " that a " + type_name(type) +
           " weight reads");
  const int64_t written = std::min(group_end * group, n_out) - group_begin * group;
  if (ldo < written && x.rows > 1)
    refuse("out has ldo = " + std::to_string(ldo) + ", less than the " + std::to_string(written) +
           " outputs of its groups");
  if (group_begin < 0 || group_begin > group_end || group_end > n_groups())
    refuse("groups [" + std::to_string(group_begin) + ", " + std::to_string(group_end) +
           ") are not within the weight's " + std::to_string(n_groups()));
}

const KernelSet& kernel_set(Simd simd) {
  switch (simd) {
#if defined(__x86_64__)
    case Simd::avx2: return kAvx2Kernels;
    case Simd::avx512: return kAvx512Kernels;
    case Simd::amx: return kAmxKernels;
#elif defined(__aarch64__)
    case Simd::neon: return kNeonKernels;
#endif
    default: return kGenericKernels;
  }
}

}  // namespace matmul

bool can_pack(TensorType type) { return matmul::find_layout(type) != nullptr; }

std::vector<std::unique_ptr<PackedWeight>> pack_weights(const std::vector<RawWeight>& weights, Simd simd,
                                                        WeightArena& arena, Pool& pool) {
  std::vector<std::unique_ptr<PackedWeight>> packed;
  std::vector<matmul::Piece> pieces;
  for (const RawWeight& from : weights) {
    std::unique_ptr<matmul::LoadedWeight> weight = matmul::lay_out(from, simd, arena);
    matmul::add_pieces(*weight, from, pieces);
    packed.push_back(std::move(weight));
  }
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<int64_t>(pieces.size()),
                    [&](int64_t i) { matmul::pack(pieces[static_cast<size_t>(i)]); });
  });
  // A page that is read may bring those around it back, of pieces that another thread was done with.
  for (const RawWeight& from : weights)
    if (from.mapped) matmul::give_back(from.raw, from.raw + from.n_out * matmul::row_bytes(from));
  return packed;
}

void quantize_row(const float* x, int64_t k, ActivationBlock* blocks, Simd simd) {
  matmul::kernel_set(simd).quantize_row(x, k, blocks);
}

}  // namespace pellucid
