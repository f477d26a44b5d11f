#include "launcher/hosts/file_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "tests/launcher/hosts/transfer_rig.h"
#include "tests/launcher/user_error.h"

namespace strait::transfer {
namespace {

// Long enough for a thread that waits for a busy machine.
TransferAgentOptions soon_stalled() {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(5);
  return options;
}

ChunkTable table_of(const std::string& bytes) {
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "file", bytes);
  return read_chunk_table(directory / "file");
}

// A file of the launcher, fetched by the first host.
std::future<std::uint64_t> fetch_file(TransferRig& rig, const std::string& name, std::size_t bytes,
                                      std::uint64_t seed) {
  const auto source = rig.launcher.directory / name;
  ScratchDirectory::write(source, random_bytes(bytes, seed));
  const ChunkTable table = rig.launcher.agent->offer(source);
  const TransferHost& host = *rig.hosts[0];
  return rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / name));
}

// The window of a source is shared, and the first fetch uses it for longer than the timeout.
TEST(FileFetcher, FetchBehindAnotherIsNotStalled) {
  TransferAgentOptions options = soon_stalled();
  options.upload_bytes_per_second = 1.5e6;
  TransferRig rig(1, options);
  auto first = fetch_file(rig, "first", 12 * kMebibyte, 1);
  auto second = fetch_file(rig, "second", kMebibyte, 2);
  EXPECT_EQ(get_soon(first), 12 * kMebibyte);
  EXPECT_EQ(get_soon(second), kMebibyte);
}

TEST(FileFetcher, SilentLastSourceEndsTheFetch) {
  TransferHost host(net::ProcessName::host_agent(0), soon_stalled());
  const auto launcher = TransferRig::link_peer(host, net::ProcessName::coordinator());
  const ChunkTable table = table_of(random_bytes(4 * kMebibyte, 1));
  std::vector<std::promise<FileReply>> replies(2);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const std::string path = (host.directory / std::to_string(i)).string();
    host.perform(Fetch{table, {{0, 4}}, path, {}},
                 [&reply = replies[i]](const FileReply& made) { reply.set_value(made); });
  }
  for (auto& reply : replies) {
    auto made = reply.get_future();
    const FileReply failed = get_soon(made);
    EXPECT_EQ(std::get<base::Failure>(failed).code, base::ExitCode::stalled);
    EXPECT_THAT(std::get<base::Failure>(failed).text, testing::HasSubstr("no data from"));
  }
}

// A limit may let a chunk pass in longer than the timeout, at either end.
TEST(FileFetcher, LimitsStallNoFetch) {
  for (double TransferAgentOptions::*const limit :
       {&TransferAgentOptions::upload_bytes_per_second,
        &TransferAgentOptions::download_bytes_per_second}) {
    TransferAgentOptions options = soon_stalled();
    options.*limit = 150e3;
    TransferRig rig(1, options);
    auto fetch = fetch_file(rig, "file", 2 * kMebibyte, 1);
    EXPECT_EQ(get_soon(fetch), 2 * kMebibyte);
  }
}

TEST(RequestWindow, GrowsWithWhatComes) {
  RequestWindow window;
  RequestWindow::Time now{};
  const auto requested = [&] {
    std::size_t count = 0;
    for (; !window.full(now); ++count) window.requested();
    return count;
  };
  EXPECT_EQ(requested(), 2U);
  for (int chunk = 0; chunk < 100; ++chunk) {
    window.arrived(now);
    requested();
  }
  for (std::size_t left = RequestWindow::kMost; left > 0; --left) window.answered();
  EXPECT_EQ(requested(), RequestWindow::kMost);
  now += std::chrono::seconds(2);
  for (std::size_t left = RequestWindow::kMost; left > 0; --left) window.answered();
  EXPECT_EQ(requested(), 2U);
}

}  // namespace
}  // namespace strait::transfer
