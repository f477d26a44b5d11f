#include "launcher/hosts/file_server.h"

#include <gtest/gtest.h>

#include "tests/launcher/hosts/transfer_rig.h"

namespace strait::transfer {
namespace {

// A launcher and two peers that the test plays.
struct ServedPeers {
  explicit ServedPeers(const TransferAgentOptions& options = {})
      : launcher(net::ProcessName::coordinator(), options) {}

  ChunkTable offer(std::size_t bytes) {
    ScratchDirectory::write(path(), random_bytes(bytes, 1));
    return launcher.agent->offer(path());
  }
  std::filesystem::path path() const { return launcher.directory / "file"; }

  TransferHost launcher;
  std::unique_ptr<net::Link> one =
      TransferRig::link_peer(launcher, net::ProcessName::host_agent(0));
  std::unique_ptr<net::Link> other =
      TransferRig::link_peer(launcher, net::ProcessName::host_agent(1));
};

TEST(FileServer, LacksChunkOfModifiedOrRemovedFile) {
  ServedPeers peers;
  const ChunkTable table = peers.offer(9);
  const auto get = message::format(message::Get{table.id(), 0});
  peers.one->send(get);
  EXPECT_EQ(receive_next<message::Chunk>(*peers.one).content.size(), 9U);
  ScratchDirectory::write(peers.path(), "as it is.");
  peers.one->send(get);
  receive_next<message::Missing>(*peers.one);
  peers.offer(9);
  std::filesystem::remove(peers.path());
  peers.one->send(get);
  receive_next<message::Missing>(*peers.one);
}

// At 5 MB/s a chunk takes 0.2 s: all requests wait when the other peer's comes.
TEST(FileServer, ServesPeersInTurn) {
  TransferAgentOptions options;
  options.upload_bytes_per_second = 5e6;
  ServedPeers peers(options);
  const ChunkTable table = peers.offer(8 * kMebibyte);
  for (std::uint32_t chunk = 0; chunk < 8; ++chunk) {
    peers.one->send(message::format(message::Get{table.id(), chunk}));
  }
  peers.other->send(message::format(message::Get{table.id(), 0}));
  receive_next<message::Chunk>(*peers.other);
  EXPECT_LT(peers.launcher.agent->totals().sent_bytes, 8 * kMebibyte);
}

TEST(FileServer, DropsPeerThatRequestsTooMuchAtOnce) {
  TransferAgentOptions options;
  options.upload_bytes_per_second = 1;
  ServedPeers peers(options);
  const ChunkTable table = peers.offer(kMebibyte);
  EXPECT_THROW(
      {
        while (true) peers.one->send(message::format(message::Get{table.id(), 0}));
      },
      net::LinkError);
  EXPECT_FALSE(peers.launcher.agent->linked(net::ProcessName::host_agent(0)));
  EXPECT_TRUE(peers.launcher.agent->linked(net::ProcessName::host_agent(1)));
}

}  // namespace
}  // namespace strait::transfer
