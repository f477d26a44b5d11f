#include "framework/sync/packet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "framework/sync/block_models.h"
#include "framework/sync/block_pattern.h"
#include "framework/sync/grid.h"
#include "framework/sync/plain_bits.h"
#include "framework/sync/survivors.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr std::size_t kHeadBytes = 6;
constexpr std::uint32_t kFormat = 2;
constexpr unsigned kStepBits = 13;
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

// Blocks one behind the other that share a grid: those of one dense piece, or some that are not
// dense.
struct Run {
  std::size_t first = 0;  // block
  std::size_t count = 0;
  bool dense = false;
  Grid grid;
  std::size_t first_value = 0;  // of those that are sent
  std::size_t values = 0;

  // A run of zeros alone is not coded.
  bool silent() const { return grid.threshold == 0; }
  bool levelled() const { return !silent() && grid.most_level > 0; }
};

std::vector<Run> runs_of(std::span<const Block> blocks, const Grid& grid) {
  std::vector<Run> runs;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    const bool same = b > 0 && block.dense == blocks[b - 1].dense &&
                      (!block.dense || block.piece == blocks[b - 1].piece);
    if (!same) runs.push_back({.first = b, .dense = block.dense, .grid = grid});
    ++runs.back().count;
  }
  return runs;
}

// Of blocks that are not dense, and of those that are.
std::array<BlockModels, 2> models_of(const PacketHead& head, SymbolModel::End end) {
  return {BlockModels(head.guess(), head.grid().decay, end),
          BlockModels(kDenseShare, grid_around_zero(0, head.bits).decay, end)};
}

template <class Value>
std::span<Value> blocks_within(std::span<Value> by_block, const Run& run) {
  return by_block.subspan(run.first, run.count);
}

template <class Value>
std::span<Value> values_within(std::span<Value> by_value, const Run& run) {
  return by_value.subspan(run.first_value, run.values);
}

// Of a dense piece's blocks.
float dense_step(std::span<const Block> blocks, std::span<const float> values, int bits) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
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

// Patterns and values of all that is sent, and runs with their grids.
SparseValues picked(std::span<const Block> blocks, std::span<const float> values,
                    Survivors survivors, int bits, std::vector<Run>& runs) {
  SparseValues sent;
  if (runs.size() == 1 && !runs[0].dense) {
    sent = {std::move(survivors.patterns), std::move(survivors.values)};
    sent.patterns.resize(blocks.size());
    runs[0].values = sent.values.size();
    return sent;
  }
  sent.patterns.resize(blocks.size());
  auto next_pattern = survivors.patterns.begin();
  auto next_value = survivors.values.begin();
  for (Run& run : runs) {
    run.first_value = sent.values.size();
    const auto patterns = blocks_within(std::span(sent.patterns), run);
    if (run.dense) {
      const auto its = values.subspan(run.first * kBlockValues, run.count * kBlockValues);
      run.grid = grid_around_zero(dense_step(blocks_within(blocks, run), its, bits), bits);
      for (std::size_t b = 0; b < run.count && !run.silent(); ++b) {
        patterns[b] = pick_dense(its.subspan(b * kBlockValues, kBlockValues), run.grid.threshold,
                                 sent.values);
      }
    } else if (!run.silent()) {
      for (std::uint16_t& pattern : patterns) {
        pattern = *next_pattern++;
        const auto end = next_value + std::popcount(pattern);
        sent.values.insert(sent.values.end(), next_value, end);
        next_value = end;
      }
    }
    run.values = sent.values.size() - run.first_value;
  }
  return sent;
}

// Their levels; the values become what is read.
void quantise(const Grid& grid, std::span<float> values, std::span<std::int32_t> levels) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    levels[i] = grid.level(std::abs(values[i]));
    values[i] = std::copysign(grid.value(levels[i]), values[i]);
  }
}

// What is as good as random of a value: its sign, and the low bits of its level.
unsigned plain_bits_of(int bits) { return 1 + grid_above(0, 0, bits).plain_bits; }

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

[[noreturn]] void refuse_end() {
  throw SyncError(SyncError::Kind::corrupt, "a packet does not end where its values do");
}

void check_pattern(const Block& block, std::uint16_t pattern) {
  if (pattern >> block.count == 0) return;
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("a packet has values behind the {} of a block", block.count));
}

float take_step(LaneReader& reader, std::size_t lane) {
  const std::uint32_t code = reader.place(lane, kStepBits);
  reader.take(lane, code, 1, kStepBits);
  const float step = step_of(code);
  if (step_is_sound(step)) return step;
  throw SyncError(SyncError::Kind::corrupt, "a packet has a step that there is not");
}

void put_symbols(const PacketHead& head, std::span<const Run> runs, const SparseValues& sent,
                 std::span<const std::int32_t> levels, LaneWriter& writer) {
  writer.reserve(2 * sent.patterns.size() + 2 * levels.size() + runs.size());
  auto models = models_of(head, SymbolModel::End::writer);
  const std::span<const std::uint16_t> patterns(sent.patterns);
  for (const Run& run : runs) {
    if (run.dense) {
      writer.put(run.first % kLanes, step_code(run.grid.step), 1, kStepBits);
    }
    if (run.silent()) continue;
    models[run.dense ? 1 : 0].put_classes(writer, run.first, blocks_within(patterns, run));
  }
  for (const Run& run : runs) {
    if (!run.silent()) put_places(writer, run.first, blocks_within(patterns, run));
  }
  for (const Run& run : runs) {
    if (!run.levelled()) continue;
    models[run.dense ? 1 : 0].put_levels(writer, run.first_value, blocks_within(patterns, run),
                                         values_within(levels, run), run.grid);
  }
}

// Fills in patterns, and of runs grids and numbers of values; returns levels.
std::vector<std::int32_t> take_symbols(const PacketHead& head, std::span<const Block> blocks,
                                       std::span<Run> runs, LaneReader& reader,
                                       std::span<std::uint16_t> patterns) {
  auto models = models_of(head, SymbolModel::End::reader);
  std::vector<std::uint8_t> classes(blocks.size());
  for (Run& run : runs) {
    if (run.dense) {
      run.grid = grid_around_zero(take_step(reader, run.first % kLanes), head.bits);
    }
    if (run.silent()) continue;
    models[run.dense ? 1 : 0].take_classes(reader, run.first,
                                           blocks_within(std::span(classes), run));
  }
  std::size_t values = 0;
  for (Run& run : runs) {
    run.first_value = values;
    if (run.silent()) continue;
    const auto its = blocks_within(patterns, run);
    take_places(reader, run.first, blocks_within(std::span<const std::uint8_t>(classes), run), its);
    for (std::size_t b = 0; b < run.count; ++b) {
      check_pattern(blocks[run.first + b], its[b]);
      values += static_cast<std::size_t>(std::popcount(its[b]));
    }
    run.values = values - run.first_value;
  }
  std::vector<std::int32_t> levels(values);
  for (const Run& run : runs) {
    if (!run.levelled()) continue;
    models[run.dense ? 1 : 0].take_levels(
        reader, run.first_value, blocks_within(std::span<const std::uint16_t>(patterns), run),
        values_within(std::span(levels), run), run.grid);
  }
  return levels;
}

std::vector<float> take_values(const PacketHead& head, std::span<const Run> runs,
                               std::span<const std::int32_t> levels,
                               std::span<const std::byte> plain) {
  std::vector<float> values(levels.size());
  PlainBitsReader bits(plain);
  const unsigned each = plain_bits_of(head.bits);
  for (const Run& run : runs) {
    for (std::size_t i = run.first_value; i < run.first_value + run.values; ++i) {
      const std::uint32_t word = bits.take(each);
      const float value = run.grid.value(levels[i] | static_cast<std::int32_t>(word >> 1U));
      values[i] = (word & 1U) != 0 ? -value : value;
    }
  }
  if (!bits.ends_in_zeros()) refuse_end();
  return values;
}

}  // namespace

SparseValues write_packet(std::span<const Block> blocks, std::span<const float> values,
                          const PacketSettings& settings, net::Frame& out) {
  if (blocks.empty()) return {};
  Survivors survivors = survivors_of(blocks, values, settings.top);
  const PacketHead head = head_of(survivors, settings.bits);
  append_head(head, out);
  std::vector<Run> runs = runs_of(blocks, head.grid());
  SparseValues sent = picked(blocks, values, std::move(survivors), head.bits, runs);
  std::vector<std::int32_t> levels(sent.values.size());
  for (const Run& run : runs) {
    quantise(run.grid, values_within(std::span(sent.values), run),
             values_within(std::span(levels), run));
  }
  LaneWriter writer;
  put_symbols(head, runs, sent, levels, writer);
  const unsigned each = plain_bits_of(head.bits);
  PlainBitsWriter plain(each * levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(levels[i]) << 1U;
    plain.put((word | (std::signbit(sent.values[i]) ? 1U : 0U)) & ((1U << each) - 1), each);
  }
  writer.finish(plain.finish(), out);
  return sent;
}

SparseValues read_packet(std::span<const Block> blocks, std::span<const std::byte> bytes) {
  SparseValues sent;
  if (blocks.empty() && bytes.empty()) return sent;
  const PacketHead head = read_packet_head(bytes);
  sent.patterns.resize(blocks.size());
  std::vector<Run> runs = runs_of(blocks, head.grid());
  LaneReader reader(bytes.subspan(kHeadBytes));
  const auto levels = take_symbols(head, blocks, runs, reader, sent.patterns);
  std::vector<std::byte> plain;
  const std::size_t bits = plain_bits_of(head.bits) * levels.size();
  if (!reader.finish((bits + 7) / 8, plain)) refuse_end();
  sent.values = take_values(head, runs, levels, plain);
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
