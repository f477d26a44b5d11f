#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/sync/lane_coder.h"
#include "framework/sync/packet_head.h"
#include "framework/sync/packet_runs.h"
#include "framework/sync/random_choice.h"

namespace strait::sync {

// What of a packet goes through the lane coder: of runs the grids of dense ones, of blocks which
// values are sent, of values the upper bits of their levels. In this order, so that each part is a
// loop in which nothing is unforeseen.
void put_symbols(const PacketHead& head, std::span<const PacketRun> runs,
                 std::span<const std::uint16_t> patterns, std::span<const std::int32_t> levels,
                 LaneWriter& writer);

// Fills in patterns (zero before), levels, and of runs grids and numbers of values. SyncError where
// that is nothing that a writer says.
void take_symbols(const PacketHead& head, std::span<const Block> blocks, LaneReader& reader,
                  std::span<PacketRun> runs, std::span<std::uint16_t> patterns,
                  std::vector<std::int32_t>& levels);

}  // namespace strait::sync
