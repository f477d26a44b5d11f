#include "framework/sync/packet.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "framework/sync/block_models.h"
#include "framework/sync/grid.h"
#include "framework/sync/range_coder.h"
#include "framework/sync/survivors.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kHeadBytes = 6;
constexpr std::uint32_t kFormat = 1;
constexpr double kShares = 255;
constexpr double kDenseShare = 0.85;  // of values that are not read as zero, at four bits
constexpr auto kBlockValues = static_cast<std::size_t>(kGrain);

// Of the values that are not dense.
struct PacketHead {
  int bits = 0;
  std::uint32_t share = 0;  // that is sent, of kShares; only a guess that the coder begins with
  float threshold = 0;      // 0: none is
  float step = 0;

  double guess() const { return std::clamp(share / kShares, 0.004, 0.996); }
  Grid grid() const { return grid_above(threshold, step, bits); }
};

PacketHead head_of(const Survivors& survivors, int bits) {
  PacketHead head;
  head.bits = bits;
  if (survivors.values.empty()) return head;
  head.share = static_cast<std::uint32_t>(std::lround(kShares * survivors.share));
  head.threshold = threshold_below(survivors.least);
  head.step = step_of(step_code(step_above(head.threshold, survivors.mean, bits)));
  return head;
}

// The models and the grid for each block, in the order in which both ends come to it.
class PacketCoder {
 public:
  explicit PacketCoder(const PacketHead& head)
      : bits_(head.bits),
        grid_(head.grid()),
        models_(head.guess(), grid_.decay),
        dense_models_(kDenseShare, grid_around_zero(0, head.bits).decay) {}

  // The grid of a dense piece's blocks is sent before the first of them.
  bool begins_piece(const Block& block) const { return block.dense && block.piece != piece_; }
  void begin_piece(const Block& block, float step) {
    piece_ = block.piece;
    dense_grid_ = grid_around_zero(step, bits_);
  }
  const Grid& grid(const Block& block) const { return block.dense ? dense_grid_ : grid_; }
  BlockModels& models(const Block& block) { return block.dense ? dense_models_ : models_; }
  // A block of zeros alone is not coded.
  bool silent(const Block& block) const { return grid(block).threshold == 0; }

 private:
  int bits_;
  Grid grid_;
  Grid dense_grid_;
  BlockModels models_;
  BlockModels dense_models_;
  std::optional<std::uint32_t> piece_;
};

// Of a dense piece's blocks from the first on.
float dense_step(std::span<const Block> blocks, std::span<const float> values, int bits) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t b = 0; b < blocks.size() && blocks[b].piece == blocks[0].piece; ++b) {
    count += blocks[b].count;
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      sum += static_cast<double>(std::abs(values[b * kBlockValues + i]));
    }
  }
  const double mean = sum / static_cast<double>(count);
  if (mean < static_cast<double>(kLeastMagnitude)) return 0;
  return step_of(step_code(step_around_zero(mean, bits)));
}

// Takes what is not zero.
std::uint16_t pick_dense(std::span<const float> values, float threshold,
                         std::vector<float>& picked) {
  std::uint32_t pattern = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    if (std::abs(values[i]) < threshold) continue;
    pattern |= 1U << i;
    picked.push_back(values[i]);
  }
  return static_cast<std::uint16_t>(pattern);
}

// Their levels; the values become what is read.
std::vector<std::int32_t> quantise(const Grid& grid, std::span<float> values) {
  std::vector<std::int32_t> levels(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    levels[i] = grid.level(std::abs(values[i]));
    values[i] = std::copysign(grid.value(levels[i]), values[i]);
  }
  return levels;
}

void fill(CodedBlock& block, std::uint16_t pattern, const float* values,
          const std::int32_t* levels) {
  block.pattern = pattern;
  block.signs = 0;
  const auto count = static_cast<std::size_t>(std::popcount(pattern));
  for (std::size_t i = 0; i < count; ++i) {
    block.signs |= static_cast<std::uint16_t>((std::signbit(values[i]) ? 1U : 0U) << i);
    block.levels[i] = levels[i];
  }
}

void append_head(const PacketHead& head, net::Frame& out) {
  const std::uint32_t threshold = std::bit_cast<std::uint32_t>(head.threshold) >> 16U;
  const std::uint32_t step = step_code(head.step);
  for (const std::uint32_t byte : {kFormat << 4U | static_cast<std::uint32_t>(head.bits),
                                   head.share, threshold, threshold >> 8U, step, step >> 8U}) {
    out.push_back(std::byte(byte));
  }
}

PacketHead read_packet_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a packet of {} bytes is shorter than its head", bytes.size()));
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(bytes[at]); };
  PacketHead head;
  head.bits = static_cast<int>(byte(0) & 15U);
  head.share = byte(1);
  head.threshold = std::bit_cast<float>((byte(2) | byte(3) << 8U) << 16U);
  const std::uint32_t step = byte(4) | byte(5) << 8U;
  const bool silent =
      head.threshold == 0 && step == 0 && head.share == 0 && !std::signbit(head.threshold);
  if (step < kStepCodes) head.step = step_of(step);
  if (byte(0) >> 4U != kFormat || head.bits < 1 || head.bits > 8 || step >= kStepCodes ||
      !step_is_sound(head.step) || !(silent || threshold_is_sound(head.threshold))) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a packet's head names a format, a threshold or a step that there is not");
  }
  return head;
}

std::uint16_t lanes_of(const Block& block) {
  return static_cast<std::uint16_t>((1U << block.count) - 1);
}

void check_block(const Block& block, const CodedBlock& coded) {
  if ((coded.pattern & ~lanes_of(block)) == 0 && coded.signs >> std::popcount(coded.pattern) == 0) {
    return;
  }
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("a packet has values behind the {} of a block", block.count));
}

float take_step(RangeDecoder& decoder) {
  const float step = step_of(decoder.uniform(kStepCodes));
  if (step_is_sound(step)) return step;
  throw SyncError(SyncError::Kind::corrupt, "a packet has a step that there is not");
}

}  // namespace

SparseValues write_packet(std::span<const Block> blocks, std::span<const float> values,
                          const PacketSettings& settings, net::Frame& out) {
  SparseValues sent;
  if (blocks.empty()) return sent;
  Survivors survivors = survivors_of(blocks, values, settings.top);
  const PacketHead head = head_of(survivors, settings.bits);
  append_head(head, out);
  sent.patterns.resize(blocks.size());
  sent.values.reserve(survivors.values.size());
  const auto levels = quantise(head.grid(), survivors.values);
  PacketCoder coder(head);
  RangeEncoder encoder;
  CodedBlock coded;
  std::vector<float> dense;
  std::size_t at = 0;
  auto next_pattern = survivors.patterns.begin();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    if (coder.begins_piece(block)) {
      const float step =
          dense_step(blocks.subspan(b), values.subspan(b * kBlockValues), settings.bits);
      encoder.put_uniform(step_code(step), kStepCodes);
      coder.begin_piece(block, step);
    }
    if (coder.silent(block)) continue;
    const Grid& grid = coder.grid(block);
    const float* its = survivors.values.data() + at;
    if (block.dense) {
      dense.clear();
      const auto pattern =
          pick_dense(values.subspan(b * kBlockValues, kBlockValues), grid.threshold, dense);
      fill(coded, pattern, its = dense.data(), quantise(grid, dense).data());
    } else {
      fill(coded, *next_pattern++, its, levels.data() + at);
      at += static_cast<std::size_t>(std::popcount(coded.pattern));
    }
    coder.models(block).put(encoder, coded, grid);
    sent.patterns[b] = coded.pattern;
    sent.values.insert(sent.values.end(), its, its + std::popcount(coded.pattern));
  }
  encoder.finish(out);
  return sent;
}

SparseValues read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes) {
  SparseValues sent;
  if (blocks.empty() && bytes.empty()) return sent;
  const PacketHead head = read_packet_head(bytes);
  sent.patterns.resize(blocks.size());
  PacketCoder coder(head);
  RangeDecoder decoder(bytes.subspan(kHeadBytes));
  CodedBlock coded;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    if (coder.begins_piece(block)) coder.begin_piece(block, take_step(decoder));
    if (coder.silent(block)) continue;
    const Grid& grid = coder.grid(block);
    coder.models(block).take(decoder, grid, coded);
    check_block(block, coded);
    sent.patterns[b] = coded.pattern;
    const int count = std::popcount(coded.pattern);
    for (int i = 0; i < count; ++i) {
      const float value = grid.value(coded.levels[static_cast<std::size_t>(i)]);
      sent.values.push_back((coded.signs >> i & 1U) != 0 ? -value : value);
    }
  }
  if (!decoder.finish()) {
    throw SyncError(SyncError::Kind::corrupt, "a packet does not end where its values do");
  }
  return sent;
}

void add_to(std::span<float> values, const SparseValues& sent) {
  auto next = sent.values.begin();
  for (std::size_t b = 0; b < sent.patterns.size(); ++b) {
    for (std::uint32_t rest = sent.patterns[b]; rest != 0; rest &= rest - 1) {
      values[b * kBlockValues + static_cast<std::size_t>(std::countr_zero(rest))] += *next++;
    }
  }
}

}  // namespace strait::sync
