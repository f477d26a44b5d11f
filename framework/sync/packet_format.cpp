#include "framework/sync/packet_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/sync/block_models.h"
#include "framework/sync/block_pattern.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// The version of the packet format, in the upper half of the first byte.
constexpr std::uint32_t kFormat = 2;
constexpr double kShares = 255;

// The share of dense values that are not read as zero, at four bits: the initial guess.
constexpr double kDenseShare = 0.85;
constexpr unsigned kStepBits = 13;
static_assert(kStepCodes == 1U << kStepBits);

// The models of the blocks that are not dense, and of the dense ones.
class Models {
 public:
  Models(const PacketHeader& header, coding::SymbolModel::End end)
      : sparse_(header.guess(), header.grid().decay, end),
        dense_(kDenseShare, grid_around_zero(0, header.bits).decay, end) {}
  BlockModels& of(const PacketRun& run) { return run.dense ? dense_ : sparse_; }

 private:
  BlockModels sparse_;
  BlockModels dense_;
};

float take_step(coding::LaneReader& reader, std::size_t lane) {
  const std::uint32_t code = reader.peek(lane, kStepBits);
  reader.take(lane, code, 1, kStepBits);
  const float step = step_of(code);
  if (step_is_sound(step)) return step;
  throw SyncError(SyncError::Kind::corrupt, "a packet has an invalid step of a dense tensor");
}

// The number of values that a run's patterns select.
std::size_t checked_values(std::span<const Block> blocks, std::span<const std::uint16_t> patterns) {
  std::size_t values = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    values += values_in(patterns[b]);
    if (patterns[b] >> blocks[b].count == 0) continue;
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a packet has values beyond the {} of a block", blocks[b].count));
  }
  return values;
}

}  // namespace

PacketHeader PacketHeader::of(int bits, double share, float least, double mean) {
  PacketHeader header;
  header.bits = bits;
  if (least == 0) return header;
  header.share = static_cast<std::uint32_t>(std::lround(kShares * share));
  header.threshold = threshold_below(least);
  header.step = step_of(step_code(step_above(header.threshold, mean, bits)));
  return header;
}

// Away from 0 and 1, where the coder's initial frequencies would be infinite or zero.
double PacketHeader::guess() const { return std::clamp(share / kShares, 0.004, 0.996); }

void append_packet_header(const PacketHeader& header, net::Frame& out) {
  const std::uint32_t threshold = std::bit_cast<std::uint32_t>(header.threshold) >> 16U;
  const std::uint32_t step = step_code(header.step);
  for (const std::uint32_t byte : {kFormat << 4U | static_cast<std::uint32_t>(header.bits),
                                   header.share, threshold, threshold >> 8U, step, step >> 8U}) {
    out.push_back(std::byte(byte));
  }
}

PacketHeader read_packet_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kPacketHeaderBytes) {
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a packet has {} bytes, its header alone has {}", bytes.size(),
                                kPacketHeaderBytes));
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(bytes[at]); };
  PacketHeader header;
  header.bits = static_cast<int>(byte(0) & 15U);
  header.share = byte(1);
  header.threshold = std::bit_cast<float>((byte(2) | byte(3) << 8U) << 16U);
  const std::uint32_t step = byte(4) | byte(5) << 8U;
  // A header of zeros means that nothing is sent of what is not dense. Minus zero is not allowed,
  // so that each packet has one encoding.
  const bool all_zero =
      header.threshold == 0 && step == 0 && header.share == 0 && !std::signbit(header.threshold);
  if (step < kStepCodes) header.step = step_of(step);
  if (byte(0) >> 4U != kFormat || header.bits < 1 || header.bits > 8 || step >= kStepCodes ||
      !step_is_sound(header.step) || !(all_zero || threshold_is_sound(header.threshold))) {
    throw SyncError(SyncError::Kind::corrupt,
                    "a packet's header has an invalid format, threshold or step");
  }
  return header;
}

std::vector<PacketRun> packet_runs(std::span<const Block> blocks, const Grid& grid) {
  std::vector<PacketRun> runs;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    const bool same = b > 0 && block.dense == blocks[b - 1].dense &&
                      (!block.dense || block.piece == blocks[b - 1].piece);
    if (!same) runs.push_back({.first = b, .dense = block.dense, .grid = grid});
    ++runs.back().count;
  }
  return runs;
}

void put_symbols(const PacketHeader& header, std::span<const PacketRun> runs,
                 std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                 coding::LaneWriter& writer) {
  writer.reserve(2 * patterns.size() + 2 * levels.size() + runs.size());
  Models models(header, coding::SymbolModel::End::writer);
  for (const PacketRun& run : runs) {
    if (run.dense) writer.put(run.first % coding::kLanes, step_code(run.grid.step), 1, kStepBits);
    if (run.all_zero()) continue;
    models.of(run).put_classes(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.all_zero()) put_patterns(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.has_levels()) continue;
    models.of(run).put_levels(writer, run.first_value, blocks_within(patterns, run),
                              values_within(levels, run), run.grid);
  }
}

void take_symbols(const PacketHeader& header, std::span<const Block> blocks,
                  coding::LaneReader& reader, std::span<PacketRun> runs,
                  std::span<std::uint16_t> patterns, std::vector<std::int32_t>& levels) {
  Models models(header, coding::SymbolModel::End::reader);
  std::vector<std::uint8_t> classes(blocks.size());
  // In the order of put_symbols(). The patterns must be known before the levels: they decide how
  // many levels there are.
  for (PacketRun& run : runs) {
    if (run.dense) {
      run.grid = grid_around_zero(take_step(reader, run.first % coding::kLanes), header.bits);
    }
    if (run.all_zero()) continue;
    models.of(run).take_classes(reader, run.first, blocks_within(std::span(classes), run));
  }
  std::size_t values = 0;
  for (PacketRun& run : runs) {
    run.first_value = values;
    if (run.all_zero()) continue;
    const auto its = blocks_within(patterns, run);
    take_patterns(reader, run.first, blocks_within(std::span<const std::uint8_t>(classes), run),
                  its);
    run.values = checked_values(blocks_within(blocks, run), its);
    values += run.values;
  }
  levels.assign(values, 0);
  for (const PacketRun& run : runs) {
    if (!run.has_levels()) continue;
    models.of(run).take_levels(reader, run.first_value,
                               blocks_within(std::span<const std::uint16_t>(patterns), run),
                               values_within(std::span(levels), run), run.grid);
  }
}

}  // namespace strait::sync
