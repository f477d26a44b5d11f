#include "framework/sync/packet_runs.h"

namespace strait::sync {

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

}  // namespace strait::sync
