#include "framework/sync/packet_symbols.h"

#include <fmt/format.h>

#include <array>

#include "framework/sync/block_models.h"
#include "framework/sync/block_pattern.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

constexpr double kDenseShare = 0.85;  // of values that are not read as zero, at four bits
constexpr unsigned kStepBits = 13;
static_assert(kStepCodes == 1U << kStepBits);

// Of blocks that are not dense, and of those that are.
class Models {
 public:
  Models(const PacketHead& head, SymbolModel::End end)
      : sparse_(head.guess(), head.grid().decay, end),
        dense_(kDenseShare, grid_around_zero(0, head.bits).decay, end) {}
  BlockModels& of(const PacketRun& run) { return run.dense ? dense_ : sparse_; }

 private:
  BlockModels sparse_;
  BlockModels dense_;
};

float take_step(LaneReader& reader, std::size_t lane) {
  const std::uint32_t code = reader.place(lane, kStepBits);
  reader.take(lane, code, 1, kStepBits);
  const float step = step_of(code);
  if (step_is_sound(step)) return step;
  throw SyncError(SyncError::Kind::corrupt, "a packet has a step that there is not");
}

// How many values a run's patterns send.
std::size_t checked_values(std::span<const Block> blocks, std::span<const std::uint16_t> patterns) {
  std::size_t values = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    values += values_in(patterns[b]);
    if (patterns[b] >> blocks[b].count == 0) continue;
    throw SyncError(SyncError::Kind::corrupt,
                    fmt::format("a packet has values behind the {} of a block", blocks[b].count));
  }
  return values;
}

}  // namespace

void put_symbols(const PacketHead& head, std::span<const PacketRun> runs,
                 std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                 LaneWriter& writer) {
  writer.reserve(2 * patterns.size() + 2 * levels.size() + runs.size());
  Models models(head, SymbolModel::End::writer);
  for (const PacketRun& run : runs) {
    if (run.dense) writer.put(run.first % kLanes, step_code(run.grid.step), 1, kStepBits);
    if (run.silent()) continue;
    models.of(run).put_classes(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.silent()) put_places(writer, run.first, blocks_within(patterns, run));
  }
  for (const PacketRun& run : runs) {
    if (!run.levelled()) continue;
    models.of(run).put_levels(writer, run.first_value, blocks_within(patterns, run),
                              values_within(levels, run), run.grid);
  }
}

void take_symbols(const PacketHead& head, std::span<const Block> blocks, LaneReader& reader,
                  std::span<PacketRun> runs, std::span<std::uint16_t> patterns,
                  std::vector<std::int32_t>& levels) {
  Models models(head, SymbolModel::End::reader);
  std::vector<std::uint8_t> classes(blocks.size());
  for (PacketRun& run : runs) {
    if (run.dense) {
      run.grid = grid_around_zero(take_step(reader, run.first % kLanes), head.bits);
    }
    if (run.silent()) continue;
    models.of(run).take_classes(reader, run.first, blocks_within(std::span(classes), run));
  }
  std::size_t values = 0;
  for (PacketRun& run : runs) {
    run.first_value = values;
    if (run.silent()) continue;
    const auto its = blocks_within(patterns, run);
    take_places(reader, run.first, blocks_within(std::span<const std::uint8_t>(classes), run), its);
    run.values = checked_values(blocks_within(blocks, run), its);
    values += run.values;
  }
  levels.assign(values, 0);
  for (const PacketRun& run : runs) {
    if (!run.levelled()) continue;
    models.of(run).take_levels(reader, run.first_value,
                               blocks_within(std::span<const std::uint16_t>(patterns), run),
                               values_within(std::span(levels), run), run.grid);
  }
}

}  // namespace strait::sync
