#include "launcher/transfer/fetch_queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "framework/file_descriptor.h"
#include "launcher/base/errors.h"
#include "tests/launcher/transfer/transfer_rig.h"
#include "tests/launcher/user_error.h"

namespace strait::transfer {
namespace {

// Long enough for a thread that waits for a busy machine.
TransferAgentOptions soon_stalled() {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(5);
  return options;
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
TEST(FetchQueue, FetchBehindAnotherIsNotStalled) {
  TransferAgentOptions options = soon_stalled();
  options.upload_bytes_per_second = 1.5e6;
  TransferRig rig(1, options);
  auto first = fetch_file(rig, "first", 12 * kMebibyte, 1);
  auto second = fetch_file(rig, "second", kMebibyte, 2);
  EXPECT_EQ(get_soon(first), 12 * kMebibyte);
  EXPECT_EQ(get_soon(second), kMebibyte);
}

TEST(FetchQueue, SilentSourceEndsFetchesBehindOthersToo) {
  TransferRig rig(1, soon_stalled());
  TransferHost& host = *rig.hosts[0];
  const auto link = TransferRig::link_peer(host, net::ProcessName::host_agent(9));
  std::vector<std::future<std::uint64_t>> fetches;
  for (const std::uint64_t seed : {1, 2}) {
    const auto source = host.directory / std::to_string(seed);
    ScratchDirectory::write(source, random_bytes(4 * kMebibyte, seed));
    const ChunkTable table = read_chunk_table(source);
    fetches.push_back(
        rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "in" / table.id())));
    ASSERT_EQ(receive_next<message::Subscribe>(*link).id, table.id());
    link->send(message::format(message::Have{table.id(), ChunkSet::all(table.count()).runs()}));
  }
  for (auto& fetch : fetches) {
    EXPECT_THAT(base::user_error(base::ExitCode::stalled, [&] { get_soon(fetch); }),
                testing::HasSubstr("no data from"));
  }
}

// A limit may let a chunk pass in longer than the timeout, at either end.
TEST(FetchQueue, LimitsStallNoFetch) {
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

ChunkTable table_of(const std::string& bytes) {
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "file", bytes);
  return read_chunk_table(directory / "file");
}

// A fetch to memory names its file by the number of a descriptor.
TEST(FetchQueue, ReleasedFetchToMemoryOpensNoOtherFile) {
  TransferHost host(net::ProcessName::host_agent(0), {});
  const auto launcher = TransferRig::link_peer(host, net::ProcessName::coordinator());
  const auto send = [&](const message::Message& sent) { launcher->send(message::format(sent)); };
  const ChunkTable slow = table_of(random_bytes(kMebibyte, 1));
  const ChunkTable wanted = table_of(random_bytes(kMebibyte, 2));
  // The file thread waits for this lock, as if another process evicted the content.
  const auto folder = host.directory.path() / "content" / slow.id();
  std::filesystem::create_directories(folder);
  const FileDescriptor lock(
      ::open((folder / "in-use").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(lock.number(), LOCK_EX), 0);
  const std::string at = (host.directory / "in").string();
  send(message::Fetch{1, slow, {{0, 1}}, at});
  send(message::FetchToMemory{2, wanted});
  // The second answer shows that the agent has passed the fetches on to the file thread.
  for (int i = 0; i < 2; ++i) {
    send(message::Subscribe{std::string(ChunkTable::kDigits, 'a')});
    receive_next<message::Have>(*launcher);
  }
  send(message::Release{3, wanted.id()});
  EXPECT_EQ(receive_next<message::Done>(*launcher).command, 3U);

  const auto victim = host.directory / "victim";
  ScratchDirectory::write(victim, "short");
  const FileDescriptor open(::open(victim.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.number(), LOCK_UN), 0);
  send(message::WriteFile{4, (host.directory / "behind").string(), "both"});
  EXPECT_EQ(receive_next<message::Done>(*launcher).command, 4U);
  EXPECT_EQ(ScratchDirectory::read(victim), "short");
}

}  // namespace
}  // namespace strait::transfer
