#include "framework/sync/packet.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "framework/sync/block_models.h"
#include "framework/sync/grid.h"
#include "framework/sync/largest.h"
#include "framework/sync/range_coder.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kHeadBytes = 6;
constexpr std::uint32_t kFormat = 1;
constexpr double kShares = 255;
constexpr double kDenseShare = 0.85;  // of values that are not read as zero, at four bits
constexpr auto kBlockValues = static_cast<std::size_t>(kGrain);

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
}

// Of the values that are not dense.
struct PacketHead {
  int bits = 0;
  std::uint32_t share = 0;  // that is sent, of kShares; only a guess that the coder begins with
  float threshold = 0;      // 0: none is
  float step = 0;

  double guess() const { return std::clamp(share / kShares, 0.004, 0.996); }
  Grid grid() const { return grid_above(threshold, step, bits); }
};

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

// What is sent of the values that are not dense.
struct Selection {
  PacketHead head;
  Largest largest;
};

Selection select(std::span<const Block> blocks, std::span<const float> values,
                 const PacketSettings& settings) {
  std::vector<std::uint32_t> magnitudes;
  magnitudes.reserve(values.size());
  std::size_t count = 0;
  const std::uint32_t least = std::bit_cast<std::uint32_t>(kLeastMagnitude);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].dense) continue;
    count += blocks[b].count;
    const std::size_t begin = magnitudes.size();
    magnitudes.resize(begin + kBlockValues);
    for (std::size_t i = 0; i < kBlockValues; ++i) {
      const std::uint32_t magnitude = magnitude_bits(values[b * kBlockValues + i]);
      magnitudes[begin + i] = magnitude < least ? 0 : magnitude;
    }
  }
  const auto wanted = static_cast<std::size_t>(settings.top * static_cast<double>(count) + 0.5);
  Selection selection;
  selection.head.bits = settings.bits;
  // Of very few at least one, or they would never be sent.
  selection.largest = largest_of(magnitudes, std::max<std::size_t>(wanted, 1));
  const Largest& largest = selection.largest;
  if (largest.count == 0) return selection;

  double sum = 0;
  for (const std::uint32_t magnitude : magnitudes) {
    if (magnitude > largest.least) sum += static_cast<double>(std::bit_cast<float>(magnitude));
  }
  const auto threshold = std::bit_cast<float>(largest.least);
  sum += static_cast<double>(threshold) * static_cast<double>(largest.ties);
  const auto sent = static_cast<double>(largest.count);
  PacketHead& head = selection.head;
  head.share = static_cast<std::uint32_t>(kShares * sent / static_cast<double>(count) + 0.5);
  head.threshold = threshold_below(threshold);
  head.step = step_of(step_code(step_above(head.threshold, sum / sent, settings.bits)));
  return selection;
}

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

std::uint16_t dense_pattern(std::span<const float> values, float threshold) {
  std::uint32_t pattern = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    pattern |= (std::abs(values[i]) >= threshold ? 1U : 0U) << i;
  }
  return static_cast<std::uint16_t>(pattern);
}

// Uses up the ties.
std::uint16_t largest_pattern(std::span<const float> values, Largest& largest) {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const std::uint32_t magnitude = magnitude_bits(values[i]);
    above |= (magnitude > largest.least ? 1U : 0U) << i;
    equal |= (magnitude == largest.least ? 1U : 0U) << i;
  }
  for (; equal != 0 && largest.ties > 0; equal &= equal - 1, --largest.ties) {
    above |= equal & -equal;
  }
  return static_cast<std::uint16_t>(above);
}

// Levels and signs of the values that the block's pattern names.
void quantise(std::span<const float> values, const Grid& grid, CodedBlock& block,
              std::vector<float>& read) {
  block.signs = 0;
  std::size_t at = 0;
  for (std::uint32_t rest = block.pattern; rest != 0; rest &= rest - 1, ++at) {
    const float value = values[static_cast<std::size_t>(std::countr_zero(rest))];
    const std::int32_t level = grid.level(std::abs(value));
    block.levels[at] = level;
    block.signs |= static_cast<std::uint16_t>((value < 0 ? 1U : 0U) << at);
    read.push_back(std::copysign(grid.value(level), value));
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

std::uint16_t values_of(const Block& block) {
  return static_cast<std::uint16_t>((1U << block.count) - 1);
}

void check_block(const Block& block, const CodedBlock& coded) {
  if ((coded.pattern & ~values_of(block)) == 0 &&
      coded.signs >> std::popcount(coded.pattern) == 0) {
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
  Selection selection = select(blocks, values, settings);
  append_head(selection.head, out);
  sent.patterns.resize(blocks.size());
  sent.values.reserve(selection.largest.count);
  PacketCoder coder(selection.head);
  RangeEncoder encoder;
  CodedBlock coded;
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
    const auto its = values.subspan(b * kBlockValues, kBlockValues);
    coded.pattern =
        block.dense ? dense_pattern(its, grid.threshold) : largest_pattern(its, selection.largest);
    quantise(its, grid, coded, sent.values);
    coder.models(block).put(encoder, coded, grid);
    sent.patterns[b] = coded.pattern;
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
