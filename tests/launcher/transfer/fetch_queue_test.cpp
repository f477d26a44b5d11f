#include "launcher/transfer/fetch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

TransferAgentOptions stalled_after_a_second() {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(1);
  return options;
}

// A file of the launcher, fetched by the first host.
std::future<std::uint64_t> fetch_file(TransferRig& rig, const std::string& name, std::size_t bytes,
                                      std::uint64_t seed) {
  const auto source = rig.launcher.directory / name;
  store::write_bytes(source, random_bytes(bytes, seed));
  const ChunkTable table = rig.launcher.agent->offer(source);
  const TransferHost& host = *rig.hosts[0];
  return rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / name));
}

// The window of a source is shared, and the first fetch uses it for longer than the timeout.
TEST(FetchQueue, FetchBehindAnotherIsNotStalled) {
  TransferAgentOptions options = stalled_after_a_second();
  options.upload_bytes_per_second = 4e6;
  TransferRig rig(1, options);
  auto first = fetch_file(rig, "first", 12 * kMebibyte, 1);
  auto second = fetch_file(rig, "second", kMebibyte, 2);
  EXPECT_EQ(get_soon(first), 12 * kMebibyte);
  EXPECT_EQ(get_soon(second), kMebibyte);
}

TEST(FetchQueue, SilentSourceEndsFetchesBehindOthersToo) {
  TransferRig rig(1, stalled_after_a_second());
  TransferHost& host = *rig.hosts[0];
  const auto link = TransferRig::link_peer(host, net::ProcessName::host_agent(9));
  std::vector<std::future<std::uint64_t>> fetches;
  for (const std::uint64_t seed : {1, 2}) {
    const auto source = host.directory / std::to_string(seed);
    store::write_bytes(source, random_bytes(4 * kMebibyte, seed));
    const ChunkTable table = read_chunk_table(source);
    fetches.push_back(
        rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "in" / table.id())));
    ASSERT_EQ(receive_next<message::Subscribe>(*link).id, table.id());
    link->send(message::format(message::Have{table.id(), ChunkSet::all(table.count()).runs()}));
  }
  for (auto& fetch : fetches) {
    try {
      get_soon(fetch);
      FAIL() << "a source that sends nothing was waited for";
    } catch (const base::UserError& error) {
      EXPECT_EQ(error.code(), base::ExitCode::stalled);
      EXPECT_THAT(error.what(), testing::HasSubstr("no data from"));
    }
  }
}

}  // namespace
}  // namespace strait::transfer
