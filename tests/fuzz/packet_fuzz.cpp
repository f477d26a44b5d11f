// libFuzzer target: any bytes as a packet of any blocks, and what is read of them written again.
// What is not refused in a SyncError is finite and lies within the blocks. The first bytes say what
// blocks there are.
#include <cmath>
#include <cstdlib>

#include "framework/sync/packet.h"
#include "framework/sync/sync_error.h"

using strait::sync::Block;
using strait::sync::kGrain;
using strait::sync::SparseValues;

namespace {

void hold(bool law) {
  if (!law) std::abort();
}

std::vector<Block> blocks_from(std::span<const std::uint8_t> bytes) {
  std::vector<Block> blocks;
  for (const std::uint8_t byte : bytes) {
    const auto piece = static_cast<std::uint32_t>(blocks.size() / 3);
    const auto first = static_cast<std::int64_t>(blocks.size()) * kGrain;
    blocks.push_back(
        {first, piece, static_cast<std::uint8_t>(1 + byte % kGrain), (byte & 128) != 0});
  }
  return blocks;
}

void write_again(const std::vector<Block>& blocks, const SparseValues& sent) {
  std::vector<float> values(blocks.size() * kGrain);
  add_to(values, sent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    hold(std::isfinite(values[i]));
    const auto lane = static_cast<std::uint8_t>(i % kGrain);
    if (lane >= blocks[i / kGrain].count) hold(values[i] == 0);
    // A sum of many such may be too large to send on, and is refused before a packet is made.
    if (std::abs(values[i]) > 0x1p99F) return;
  }
  for (const int bits : {1, 2, 4, 8}) {
    strait::net::Frame frame;
    SparseValues wrote;
    SparseValues read;
    strait::sync::PacketScratch room;
    write_packet(blocks, values, {0.3, bits}, room, frame, wrote);
    read_packet(blocks, frame, room, read);
    hold(read == wrote);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t count = std::min<std::size_t>(data[0] % 64, size - 1);
  const auto blocks = blocks_from(std::span(data + 1, count));
  try {
    SparseValues sent;
    strait::sync::PacketScratch room;
    read_packet(blocks, std::as_bytes(std::span(data + 1 + count, size - 1 - count)), room, sent);
    write_again(blocks, sent);
  } catch (const strait::sync::SyncError& error) {
    hold(*error.what() != '\0');
  }
  return 0;
}
