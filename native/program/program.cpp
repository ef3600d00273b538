#include "program/program.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

namespace pellucid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAlign = 64;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string str(int64_t value) { return std::to_string(value); }

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Kernels kernels_for(Simd simd) {
  switch (simd) {
#if defined(__x86_64__) || defined(_M_X64)
    case Simd::amx: return {simd, &kRowKernelsAvx512, &kAttentionKernelsAmx};
    case Simd::avx512: return {simd, &kRowKernelsAvx512, &kAttentionKernelsAvx512};
    case Simd::avx2: return {simd, &kRowKernelsAvx2, &kAttentionKernelsAvx2};
#elif defined(__aarch64__)
    case Simd::neon: return {simd, &kRowKernelsNeon, &kAttentionKernelsNeon};
#endif
    default: return {Simd::generic, &kRowKernelsGeneric, &kAttentionKernelsGeneric};
  }
}

Program::Program(std::shared_ptr<Pool> pool, const std::string& simd)
    : pool_(std::move(pool)), kernels_(kernels_for(simd_named(simd))) {
  std::fill(std::begin(least_table_rows_), std::end(least_table_rows_),
            std::numeric_limits<int32_t>::max());
}

// Building

int Program::add_slot(RowKind kind, int64_t bytes_per_row) {
  if (bytes_per_row < 1 || bytes_per_row > (int64_t{1} << 32))
    refuse("a slot of " + str(bytes_per_row) + " bytes a row");
  slots_.push_back({kind, bytes_per_row});
  return static_cast<int>(slots_.size()) - 1;
}

int Program::add_rope_table(int64_t dims, bool half) {
  if (dims < 2 || dims % 2) refuse("rope turns " + str(dims) + " dims, must be even");
  rope_tables_.push_back({dims, half, {}, {}});
  return static_cast<int>(rope_tables_.size()) - 1;
}

int Program::add_key_offsets(int64_t width, std::span<const float> first, std::span<const float> feedback) {
  if (width < 1) refuse("key offsets of " + str(width) + " features");
  if (!first.empty() && static_cast<int64_t>(first.size()) != width)
    refuse("key offsets: the first have " + str(static_cast<int64_t>(first.size())) +
           " features, must be " + str(width));
  key_offsets_.push_back({width, {}, {first.begin(), first.end()}, {feedback.begin(), feedback.end()}});
  return static_cast<int>(key_offsets_.size()) - 1;
}

void Program::check(const Operand& x, RowKind kind, const char* what) const {
  const std::string name(what);
  if (x.slot < 0 || x.slot >= static_cast<int>(slots_.size())) refuse(name + ": slot " + str(x.slot));
  if (slots_[x.slot].kind != kind) refuse(name + ": rows of the other kind");
  if (x.width < 1 || x.offset < 0 || x.offset + x.width > x.stride)
    refuse(name + ": columns " + str(x.offset) + " to " + str(x.offset + x.width) + " of " +
           str(x.stride));
  if (x.stride * 4 > slots_[x.slot].bytes_per_row)
    refuse(name + ": stride " + str(x.stride) + " exceeds its slot");
}

void Program::check(const Quantized& x, RowKind kind, const char* what) const {
  const std::string name(what);
  if (x.slot < 0 || x.slot >= static_cast<int>(slots_.size())) refuse(name + ": slot " + str(x.slot));
  if (slots_[x.slot].kind != kind) refuse(name + ": rows of the other kind");
  if (x.k < 1 || x.k % kBlock) refuse(name + ": k is " + str(x.k) + ", must be a multiple of 32");
  if (x.row_bytes() > slots_[x.slot].bytes_per_row)
    refuse(name + ": k " + str(x.k) + " exceeds its slot");
}

void Program::check(const ProductInput& x, const PackedWeight& weight, RowKind kind) const {
  const bool floats = x.kind == ActivationKind::f32;
  if (floats)
    check(x.floats, kind, "linear: x");
  else
    check(x.blocks, kind, "linear: x");
  if (x.kind != weight.activations) refuse("linear: the weight wants its activations in another form");
  if (x.k() != weight.k)
    refuse("linear: x has " + str(x.k()) + " features, the weight k = " + str(weight.k));
  if (floats && (x.floats.offset != 0 || x.floats.stride != x.floats.width))
    refuse("linear: rows of x are not contiguous");
}

void Program::check_same_width(const Operand& a, const Operand& b, const char* what) const {
  if (a.width != b.width)
    refuse(std::string(what) + ": " + str(a.width) + " features against " + str(b.width));
}

RowStage& Program::rows(const char* what) {
  if (open_rows_ == nullptr) refuse(std::string(what) + " outside a stage of rows");
  return *open_rows_;
}

void Program::begin_rows(RowKind kind, std::vector<int> own_slots) {
  for (int slot : own_slots)
    if (slot < 0 || slot >= static_cast<int>(slots_.size()) || slots_[slot].kind != kind)
      refuse("a stage of rows: slot " + str(slot));
  auto stage = std::make_unique<RowStage>(kind, std::move(own_slots));
  open_rows_ = stage.get();
  row_stages_.resize(stages_.size() + 1, nullptr);
  row_stages_.back() = open_rows_;
  open_kind_ = kind;
  open_products_ = nullptr;
  stages_.push_back(std::move(stage));
}

void Program::embedding(const EmbeddingTable* table, Ids ids, Operand y) {
  check(y, open_kind_, "embedding: y");
  if (open_kind_ != RowKind::tokens) refuse("embedding: of logit rows");
  if (table->k() != y.width)
    refuse("embedding: table has " + str(table->k()) + " features, y " + str(y.width));
  auto& least = least_table_rows_[static_cast<int>(ids)];
  least = std::min(least, table->n_rows());
  rows("embedding").add(embedding_op(table, ids, y));
}

void Program::take_rows(Operand x, Operand y) {
  check(x, RowKind::tokens, "take_rows: x");
  check(y, RowKind::logits, "take_rows: y");
  check_same_width(x, y, "take_rows");
  if (open_kind_ != RowKind::logits) refuse("take_rows: in a stage of token rows");
  rows("take_rows").add(take_rows_op(x, y));
}

void Program::quantize(Operand x, Quantized y) {
  check(x, open_kind_, "quantize: x");
  check(y, open_kind_, "quantize: y");
  if (x.width != y.k) refuse("quantize: " + str(x.width) + " features as " + str(y.k));
  rows("quantize").add(quantize_op(x, y));
}

void Program::quantize_rest(Operand x, Quantized blocks, Quantized y) {
  check(x, open_kind_, "quantize_rest: x");
  check(blocks, open_kind_, "quantize_rest: blocks");
  check(y, open_kind_, "quantize_rest: y");
  if (blocks.bf16 || y.bf16) refuse("quantize_rest: of bf16");
  if (x.width != y.k || x.width != blocks.k)
    refuse("quantize_rest: " + str(x.width) + " features less " + str(blocks.k) + " as " + str(y.k));
  rows("quantize_rest").add(quantize_rest_op(x, blocks, y));
}

void Program::rms_norm(Operand x, std::vector<float> weight, float eps, Operand y) {
  check(x, open_kind_, "rms_norm: x");
  check(y, open_kind_, "rms_norm: y");
  check_same_width(x, y, "rms_norm");
  const auto n = static_cast<int64_t>(weight.size());
  if (n == 0 || x.width % n)
    refuse("rms_norm: x has " + str(x.width) + " features, no multiple of the weight's " + str(n));
  rows("rms_norm").add(rms_norm_op(x, std::move(weight), eps, y));
}

void Program::layer_norm(Operand x, std::vector<float> weight, std::vector<float> bias, float eps,
                         Operand y) {
  check(x, open_kind_, "layer_norm: x");
  check(y, open_kind_, "layer_norm: y");
  check_same_width(x, y, "layer_norm");
  const auto n = static_cast<int64_t>(weight.size()), b = static_cast<int64_t>(bias.size());
  if (n != x.width || (b != 0 && b != x.width))
    refuse("layer_norm: x has " + str(x.width) + " features, the weight " + str(n) + ", the bias " +
           str(b));
  rows("layer_norm").add(layer_norm_op(x, std::move(weight), std::move(bias), eps, y));
}

void Program::rope(Operand x, int64_t head_dim, int table, Operand y) {
  check(x, open_kind_, "rope: x");
  check(y, open_kind_, "rope: y");
  check_same_width(x, y, "rope");
  if (open_kind_ != RowKind::tokens) refuse("rope: of logit rows");
  if (table < 0 || table >= static_cast<int>(rope_tables_.size())) refuse("rope: table " + str(table));
  const RopeTable& angles = rope_tables_[static_cast<size_t>(table)];
  if (head_dim < 1 || x.width % head_dim)
    refuse("rope: " + str(x.width) + " features are no whole heads of " + str(head_dim));
  if (angles.dims > head_dim)
    refuse("rope: turns " + str(angles.dims) + " dims of heads of " + str(head_dim));
  rows("rope").add(rope_op(x, head_dim, &angles, y));
}

void Program::store_kv(Operand k, Operand v, int64_t layer, int64_t n_kv_heads, int64_t head_dim,
                       std::optional<int> offsets) {
  check(k, open_kind_, "attention: k");
  check(v, open_kind_, "attention: v");
  if (open_kind_ != RowKind::tokens) refuse("attention: keys of logit rows");
  if (layer < 0 || layer > 100000) refuse("attention: layer " + str(layer));
  if (k.width != n_kv_heads * head_dim || v.width != k.width)
    refuse("attention: k has " + str(k.width) + " features, v " + str(v.width) + ", must be " +
           str(n_kv_heads) + " heads of " + str(head_dim));
  if (static_cast<int64_t>(kv_layers_.size()) <= layer) {
    kv_layers_.resize(static_cast<size_t>(layer) + 1, KvLayerShape{0, 0});
    layer_offsets_.resize(kv_layers_.size(), nullptr);
  }
  const KeyOffsets* less = nullptr;
  if (offsets) {
    if (*offsets < 0 || *offsets >= static_cast<int>(key_offsets_.size()))
      refuse("attention: key offsets " + str(*offsets));
    less = &key_offsets_[static_cast<size_t>(*offsets)];
    if (less->width != k.width)
      refuse("attention: k has " + str(k.width) + " features, its offsets " + str(less->width));
    const int64_t dim = (head_dim + kKvPadding - 1) / kKvPadding * kKvPadding;
    const auto fed = static_cast<int64_t>(less->feedback.size());
    if (fed != 0 && (dim > kMostFed || fed != n_kv_heads * dim * dim))
      refuse("attention: " + str(fed) + " numbers of feedback for " + str(n_kv_heads) + " heads of " +
             str(head_dim));
  }
  kv_layers_[static_cast<size_t>(layer)] = {n_kv_heads, head_dim};
  layer_offsets_[static_cast<size_t>(layer)] = less;
  rows("attention: k").add(store_kv_op(k, v, layer, less));
}

void Program::unary(const std::string& name, Operand x, Operand y) {
  check(x, open_kind_, name.c_str());
  check(y, open_kind_, name.c_str());
  check_same_width(x, y, name.c_str());
  rows(name.c_str()).add(unary_op(name, x, y));
}

void Program::binary(const std::string& name, Operand a, Operand b, Operand y) {
  check(a, open_kind_, name.c_str());
  check(b, open_kind_, name.c_str());
  check(y, open_kind_, name.c_str());
  check_same_width(a, b, name.c_str());
  check_same_width(a, y, name.c_str());
  rows(name.c_str()).add(binary_op(name, a, b, y));
}

void Program::scalar(const std::string& name, Operand x, float value, Operand y) {
  check(x, open_kind_, name.c_str());
  check(y, open_kind_, name.c_str());
  check_same_width(x, y, name.c_str());
  rows(name.c_str()).add(scalar_op(name, x, value, y));
}

void Program::begin_products(RowKind kind, ProductInput x) {
  auto stage = std::make_unique<ProductStage>(kind, x);
  open_products_ = stage.get();
  open_rows_ = nullptr;
  open_kind_ = kind;
  open_input_ = x;
  stages_.push_back(std::move(stage));
}

void Program::product(const PackedWeight* weight, std::vector<float> bias, Operand y, bool add,
                      std::optional<Quantized> rest) {
  if (open_products_ == nullptr) refuse("linear outside a stage of products");
  check(open_input_, *weight, open_kind_);
  check(y, open_kind_, "linear: y");
  if (y.width != weight->n_out)
    refuse("linear: y has " + str(y.width) + " features, the weight n_out = " + str(weight->n_out));
  const auto n = static_cast<int64_t>(bias.size());
  if (n != 0 && n != weight->n_out)
    refuse("linear: bias has " + str(n) + " values, the weight n_out = " + str(weight->n_out));
  if (rest) {
    check(*rest, open_kind_, "linear: rest");
    if (open_input_.kind != ActivationKind::int8 || rest->bf16 || rest->k != open_input_.blocks.k)
      refuse("linear: a rest of " + str(rest->k) + " features of another input");
  }
  open_products_->add({weight, std::move(bias), y, add, rest.value_or(Quantized{})});
}

void Program::gated(RowKind kind, ProductInput x, Product gate, Product up, const std::string& act,
                    GatedStage::Output y) {
  check(x, *gate.weight, kind);
  check(x, *up.weight, kind);
  if (y.is_quantized)
    check(y.blocks, kind, "gated: y");
  else
    check(y.floats, kind, "gated: y");
  const int64_t width = y.is_quantized ? y.blocks.k : y.floats.width;
  if (gate.weight->n_out != width || up.weight->n_out != width)
    refuse("gated: gate has " + str(gate.weight->n_out) + " outputs, up " + str(up.weight->n_out) +
           ", y " + str(width));
  if (gate.weight->group != up.weight->group) refuse("gated: gate and up have other groups");
  for (const Product* p : {&gate, &up})
    if (!p->bias.empty() && static_cast<int64_t>(p->bias.size()) != width)
      refuse("gated: bias has " + str(static_cast<int64_t>(p->bias.size())) + " values of " + str(width));
  stages_.push_back(std::make_unique<GatedStage>(kind, x, std::move(gate), std::move(up), act, y));
  open_rows_ = nullptr;
  open_products_ = nullptr;
}

void Program::attention(AttentionSettings settings, Operand q, AttentionStage::Output y) {
  check(q, RowKind::tokens, "attention: q");
  if (y.is_quantized)
    check(y.blocks, RowKind::tokens, "attention: y");
  else
    check(y.floats, RowKind::tokens, "attention: y");
  const int64_t width = settings.n_heads * settings.head_dim;
  if (q.width != width)
    refuse("attention: q has " + str(q.width) + " features, must be " + str(settings.n_heads) +
           " heads of " + str(settings.head_dim));
  if ((y.is_quantized ? y.blocks.k : y.floats.width) != width) refuse("attention: y has other features than q");
  if (y.is_quantized && settings.head_dim % kBlock)
    refuse("attention: head_dim " + str(settings.head_dim) + " cannot be quantised by heads");
  if (settings.n_kv_heads < 1 || settings.n_heads % settings.n_kv_heads)
    refuse("attention: " + str(settings.n_heads) + " heads cannot share " + str(settings.n_kv_heads));
  if (settings.layer < 0 || settings.layer >= static_cast<int64_t>(kv_layers_.size()))
    refuse("attention: layer " + str(settings.layer) + " was stored by nobody");
  const auto slopes = static_cast<int64_t>(settings.slopes.size());
  if (slopes != 0 && slopes != settings.n_heads)
    refuse("attention: " + str(slopes) + " ALiBi slopes for " + str(settings.n_heads) + " heads");
  if (settings.window < 0) refuse("attention: window " + str(settings.window));
  if (settings.bf16 && kernels_.attention->attend_bf16 == nullptr)
    refuse("attention: " + std::string(simd_name(kernels_.simd)) + " has no kernels of bfloat16");
  settings.offsets = layer_offsets_[static_cast<size_t>(settings.layer)];
  stages_.push_back(std::make_unique<AttentionStage>(std::move(settings), q, y));
  open_rows_ = nullptr;
  open_products_ = nullptr;
}

void Program::experts(ExpertsSettings settings, Operand x, Operand router_logits, Operand y) {
  check(x, RowKind::tokens, "experts: x");
  check(router_logits, RowKind::tokens, "experts: router_logits");
  check(y, RowKind::tokens, "experts: y");
  check_same_width(x, y, "experts");
  const auto n = static_cast<int64_t>(settings.gate.size());
  if (n < 1 || router_logits.width != n || static_cast<int64_t>(settings.up.size()) != n ||
      static_cast<int64_t>(settings.down.size()) != n)
    refuse("experts: " + str(n) + " experts, " + str(router_logits.width) + " router logits");
  if (settings.n_used < 1 || settings.n_used > n)
    refuse("experts: " + str(settings.n_used) + " of " + str(n) + " experts used");
  for (const auto* weights : {&settings.gate, &settings.up, &settings.down})
    for (const PackedWeight* w : *weights)
      if (w == nullptr || w->activations == ActivationKind::bf16)
        refuse(w == nullptr ? "experts: no weight" : "experts: a weight for bf16");
  const PackedWeight &gate = *settings.gate[0], &down = *settings.down[0];
  for (size_t e = 0; e < settings.gate.size(); ++e)
    for (const PackedWeight* w : {settings.gate[e], settings.up[e]})
      if (w->k != x.width || w->n_out != down.k || w->activations != gate.activations ||
          w->group != gate.group)
        refuse("experts: expert " + str(static_cast<int64_t>(e)) + " has other dimensions");
  for (const PackedWeight* w : settings.down)
    if (w->n_out != x.width || w->k != down.k || w->activations != down.activations ||
        w->group != down.group)
      refuse("experts: down projections differ in dimensions");
  stages_.push_back(std::make_unique<ExpertsStage>(std::move(settings), x, router_logits, y));
  open_rows_ = nullptr;
  open_products_ = nullptr;
}

void Program::set_output(RowKind kind, Operand y) {
  check(y, kind, "output");
  if (y.offset != 0 || y.stride != y.width) refuse("output: rows are not contiguous");
  output_kind_ = kind;
  output_ = y;
}

void Program::name_stage(std::string name) {
  if (stages_.empty()) refuse("name_stage: no stage was begun");
  names_.resize(stages_.size());
  names_.back() = std::move(name);
}

void Program::extend_rope_table(int table, std::span<const float> cos, std::span<const float> sin) {
  RopeTable& angles = rope_tables_.at(static_cast<size_t>(table));
  if (cos.size() != sin.size() || cos.size() % static_cast<size_t>(angles.width()))
    refuse("rope table: " + str(static_cast<int64_t>(cos.size())) + " cosines for rows of " +
           str(angles.width()));
  const std::lock_guard<ForkMutex> lock(mutex_);
  angles.cos.insert(angles.cos.end(), cos.begin(), cos.end());
  angles.sin.insert(angles.sin.end(), sin.begin(), sin.end());
}

int64_t Program::rope_positions(int table) const {
  return rope_tables_.at(static_cast<size_t>(table)).positions();
}

void Program::extend_key_offsets(int number, std::span<const float> values) {
  KeyOffsets& offsets = key_offsets_.at(static_cast<size_t>(number));
  if (values.size() % static_cast<size_t>(offsets.width))
    refuse("key offsets: " + str(static_cast<int64_t>(values.size())) + " values for rows of " +
           str(offsets.width));
  const std::lock_guard<ForkMutex> lock(mutex_);
  offsets.values.insert(offsets.values.end(), values.begin(), values.end());
}

int64_t Program::key_offset_positions(int number) const {
  return key_offsets_.at(static_cast<size_t>(number)).positions();
}

// Running

namespace {

// Rows that each thread computes for itself rather than wait for another: half a microsecond each.
constexpr int64_t kOwnRows = 2;

}  // namespace

void Program::lay_out(Frame& frame, std::span<float> out) {
  size_t scratch = 0, own = 0;
  for (const auto& stage : stages_) scratch = std::max(scratch, aligned(stage->scratch_bytes()));
  for (const RowStage* stage : row_stages_) {
    size_t bytes = 0;
    if (stage)
      for (int slot : stage->own_slots()) bytes += aligned(static_cast<size_t>(slots_[slot].bytes_per_row * kOwnRows));
    own = std::max(own, bytes);
  }
  own_at_ = scratch;
  scratch += own;
  std::vector<size_t> starts;
  size_t total = 0;
  for (const auto& slot : slots_) {
    starts.push_back(total);
    total += aligned(static_cast<size_t>(slot.bytes_per_row * frame.rows(slot.kind)));
  }
  const size_t needed = total + scratch * static_cast<size_t>(pool_->threads());
  if (needed > arena_bytes_) {
    arena_.reset();
    arena_bytes_ = 0;
    // Tiles read sixteen rows at once, each in a page of its own if pages are small.
    arena_ = allocate_pages(needed);
    arena_bytes_ = needed;
  }
  auto* base = reinterpret_cast<std::byte*>(arena_.get());
  for (size_t start : starts) frame.slots.push_back(base + start);
  for (int t = 0; t < pool_->threads(); ++t)
    frame.scratch.push_back(base + total + static_cast<size_t>(t) * scratch);
  frame.slots[output_.slot] = reinterpret_cast<std::byte*>(out.data());
}

void Program::run(const StepArrays& step, const KvCache& cache, std::span<float> out) {
  const std::lock_guard<ForkMutex> lock(mutex_);
  if (output_.slot < 0) refuse("program: has no output");
  StepLimits limits{least_table_rows_[0], least_table_rows_[1], &kv_layers_};
  for (const auto& table : rope_tables_) limits.positions = std::min(limits.positions, table.positions());
  for (const auto& table : key_offsets_) limits.positions = std::min(limits.positions, table.positions());
  Frame frame = make_frame(step, cache, limits);
  frame.kernels = kernels_;
  const int64_t rows = frame.rows(output_kind_);
  if (static_cast<int64_t>(out.size()) != rows * output_.width)
    refuse("program: out has " + str(static_cast<int64_t>(out.size())) + " values, must have " +
           str(rows) + " rows of " + str(output_.width));
  if (frame.rows(RowKind::tokens) == 0) return;
  lay_out(frame, out);
  for (const auto& stage : stages_) stage->prepare(frame, pool_->threads());
  seconds_.resize(stages_.size());
  own_.assign(static_cast<size_t>(pool_->threads()), {frame, std::vector<double>(stages_.size())});
  pool_->run([&](Worker& worker) {
    run_stages(frame, own_[static_cast<size_t>(worker.index())], worker);
  });
  split_joined_seconds(frame);
}

// Whether a stage of rows and the next one are one phase.
bool Program::is_joined(const Frame& frame, size_t stage) const {
  const RowStage* rows = stage < row_stages_.size() ? row_stages_[stage] : nullptr;
  return rows && !rows->own_slots().empty() && frame.rows(rows->kind()) <= kOwnRows &&
         stage + 1 < stages_.size() && stages_[stage + 1]->can_follow();
}

void Program::run_stages(const Frame& frame, Own& own, Worker& worker) {
  auto before = Clock::now();
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (is_joined(frame, i))
      run_joined(frame, own, i++, worker);
    else
      stages_[i]->run(frame, worker);
    if (worker.index() != 0) continue;
    const auto now = Clock::now();
    seconds_[i] = std::chrono::duration<double>(now - before).count();
    before = now;
  }
}

void Program::run_joined(const Frame& frame, Own& own, size_t stage, Worker& worker) {
  const RowStage& rows = *row_stages_[stage];
  std::byte* at = frame.scratch[static_cast<size_t>(worker.index())] + own_at_;
  for (int slot : rows.own_slots()) {
    own.frame.slots[slot] = at;
    at += aligned(static_cast<size_t>(slots_[slot].bytes_per_row * kOwnRows));
  }
  stages_[stage + 1]->run_after(OwnRows(rows, own.frame, own.seconds[stage]), worker);
  for (int slot : rows.own_slots()) own.frame.slots[slot] = frame.slots[slot];
}

// Rows that threads computed for themselves took as long as the slowest of them; at most half of what
// the first thread saw of both stages, which it may have spent elsewhere.
void Program::split_joined_seconds(const Frame& frame) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (!is_joined(frame, i)) continue;
    double took = 0.0;
    for (const Own& own : own_) took = std::max(took, own.seconds[i]);
    seconds_[i] = std::min(took, seconds_[i + 1] / 2);
    seconds_[i + 1] -= seconds_[i];
  }
}

}  // namespace pellucid
