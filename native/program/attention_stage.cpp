#include "program/attention_stage.h"

#include <algorithm>
#include <utility>

namespace pellucid {
namespace {

// Sequences with few queries are cut along their keys until each thread has this many pieces.
constexpr int64_t kPiecesEach = 4;

}  // namespace

AttentionStage::AttentionStage(AttentionSettings settings, Operand q, Output y)
    : settings_(std::move(settings)), q_(q), y_(y) {}

size_t AttentionStage::scratch_bytes() const {
  const int64_t state = most_state(settings_.head_dim);
  const int64_t floats = attention_scratch(settings_.head_dim) + kItemQueries * state + state;
  return static_cast<size_t>(floats) * sizeof(float);
}

const KvLayer& AttentionStage::layer(const Frame& frame) const {
  return frame.cache->layers()[settings_.layer];
}

AttentionItem AttentionStage::item(const Frame& frame, const Piece& piece) const {
  const SequenceRows& sequence = frame.sequences[piece.sequence];
  AttentionItem item;
  item.group = settings_.n_heads / settings_.n_kv_heads;
  item.q = frame.row(q_, sequence.first_row) + piece.kv_head * item.group * settings_.head_dim;
  item.q_stride = q_.stride;
  item.head_dim = settings_.head_dim;
  item.first_query = piece.first_query;
  item.n_queries = piece.n_queries;
  item.start = sequence.start;
  item.window = settings_.window;
  item.scale = settings_.scale;
  item.softcap = settings_.softcap;
  item.slopes = settings_.slopes.empty() ? nullptr : settings_.slopes.data() + piece.kv_head * item.group;
  item.layer = &layer(frame);
  item.key_offsets = settings_.offsets == nullptr || !item.layer->keys.in_blocks()
                         ? nullptr
                         : settings_.offsets->values.data() + piece.kv_head * settings_.head_dim;
  item.offsets_stride = settings_.n_kv_heads * settings_.head_dim;
  item.first_offset = item.key_offsets == nullptr || settings_.offsets->first.empty()
                          ? nullptr
                          : settings_.offsets->first.data() + piece.kv_head * settings_.head_dim;
  item.kv_head = piece.kv_head;
  item.pages = sequence.pages;
  item.page_size = frame.cache->page_size();
  return item;
}

void AttentionStage::cut(const Frame& frame, int64_t sequence, int64_t kv_head, int64_t blocks_each) {
  const int64_t group = settings_.n_heads / settings_.n_kv_heads;
  const int64_t queries = frame.sequences[sequence].length * group;
  for (int64_t q = 0; q < queries; q += kItemQueries) {
    Piece piece{static_cast<int32_t>(sequence), static_cast<int32_t>(kv_head), q,
                std::min(kItemQueries, queries - q), 0, 0, -1};
    const BlockRange seen = visible_blocks(item(frame, piece));
    piece.first_block = seen.begin;
    piece.end_block = seen.end;
    if (seen.end - seen.begin <= blocks_each || queries > kTileQueries) {
      pieces_.push_back(piece);
      continue;
    }
    piece.state = static_cast<int64_t>(states_.size());
    const int64_t block_states = piece.n_queries * state_size(layer(frame));
    states_.resize(states_.size() + (seen.end - seen.begin) * block_states);
    merges_.push_back(piece);
    for (int64_t b = seen.begin; b < seen.end; b += blocks_each) {
      Piece part = piece;
      part.first_block = b;
      part.end_block = std::min(b + blocks_each, seen.end);
      part.state += (b - seen.begin) * block_states;
      pieces_.push_back(part);
    }
  }
}

void AttentionStage::prepare(const Frame& frame, int threads) {
  pieces_.clear();
  merges_.clear();
  states_.clear();
  int64_t blocks = 0;
  for (const auto& sequence : frame.sequences)
    blocks += settings_.n_kv_heads * ((sequence.start + sequence.length) / kKeyBlock + 1);
  const int64_t blocks_each = threads == 1 ? blocks : std::max<int64_t>(blocks / (threads * kPiecesEach), 1);
  for (size_t s = 0; s < frame.sequences.size(); ++s)
    for (int64_t h = 0; h < settings_.n_kv_heads; ++h)
      cut(frame, static_cast<int64_t>(s), h, blocks_each);
  // The longest first, so that no thread starts one when the others are done.
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return a.n_queries * (a.end_block - a.first_block) > b.n_queries * (b.end_block - b.first_block);
  });
}

void AttentionStage::run(const Frame& frame, Worker& worker) const {
  auto* scratch = reinterpret_cast<float*>(frame.scratch[worker.index()]);
  worker.for_each(static_cast<int64_t>(pieces_.size()),
                  [&](int64_t i) { compute(frame, pieces_[i], scratch); });
  if (merges_.empty()) return;
  worker.for_each(static_cast<int64_t>(merges_.size()),
                  [&](int64_t i) { merge(frame, merges_[i], scratch); });
}

void AttentionStage::compute(const Frame& frame, const Piece& piece, float* scratch) const {
  const AttentionItem work = item(frame, piece);
  const AttentionKernels& kernels = *frame.kernels.attention;
  const auto attend = settings_.bf16 && can_attend_bf16(*work.layer) ? kernels.attend_bf16 : kernels.attend;
  float* states = scratch + attention_scratch(settings_.head_dim);
  if (piece.state < 0) {
    attend(work, piece.first_block, piece.end_block, states, 0, scratch);
    write(frame, piece, states, states + kItemQueries * state_size(*work.layer));
    return;
  }
  attend(work, piece.first_block, piece.end_block, states_.data() + piece.state,
         piece.n_queries * state_size(*work.layer), scratch);
}

void AttentionStage::merge(const Frame& frame, const Piece& whole, float* scratch) const {
  const int64_t size = whole.n_queries * state_size(layer(frame));
  float* states = states_.data() + whole.state;
  for (int64_t b = 1; b < whole.end_block - whole.first_block; ++b)
    frame.kernels.attention->merge(states, states + b * size, static_cast<int>(whole.n_queries),
                                   layer(frame).values.dim);
  write(frame, whole, states, scratch);
}

void AttentionStage::write(const Frame& frame, const Piece& piece, const float* states,
                           float* head) const {
  const int64_t group = settings_.n_heads / settings_.n_kv_heads;
  const int64_t first_row = frame.sequences[piece.sequence].first_row;
  for (int64_t i = 0; i < piece.n_queries; ++i) {
    const int64_t query = piece.first_query + i;
    const int64_t row = first_row + query / group;
    const int64_t column = (piece.kv_head * group + query % group) * settings_.head_dim;
    float* y = y_.is_quantized ? head : frame.row(y_.floats, row) + column;
    frame.kernels.attention->finish(states + i * state_size(layer(frame)), layer(frame), y);
    if (y_.is_quantized) quantize_columns(frame, head, settings_.head_dim, y_.blocks, row, column);
  }
}

}  // namespace pellucid
