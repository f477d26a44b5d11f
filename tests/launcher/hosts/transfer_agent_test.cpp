#include "launcher/hosts/transfer_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "tests/launcher/hosts/transfer_rig.h"
#include "tests/launcher/user_error.h"

namespace strait::transfer {
namespace {

TEST(TransferAgent, HostsFetchFromEachOtherInAChain) {
  TransferRig rig(3);
  const std::string bytes = random_bytes(24 * kMebibyte + 77, 1);
  const ChunkTable table = rig.offer(bytes);

  std::vector<std::future<std::uint64_t>> fetches;
  std::optional<net::ProcessName> from;
  for (const auto& host : rig.hosts) {
    fetches.push_back(rig.launcher.agent->fetch_on(
        host->name, all_of(table, host->directory / "in/model"), from));
    from = host->name;
  }
  for (auto& fetch : fetches) EXPECT_EQ(get_soon(fetch), bytes.size());
  std::uint64_t sent = rig.launcher.agent->totals().sent_bytes;
  for (const auto& host : rig.hosts) {
    EXPECT_EQ(ScratchDirectory::read(host->directory / "in/model"), bytes);
    const TransferTotals state = host->agent->totals();
    EXPECT_EQ(state.repeated_bytes, 0U);
    sent += state.sent_bytes;
  }
  EXPECT_EQ(sent, 3 * bytes.size());
  EXPECT_EQ(rig.launcher.agent->totals().sent_bytes, bytes.size());
}

TEST(TransferAgent, FetchesNothingWhereContentIsStored) {
  TransferRig rig(1);
  const auto source = rig.launcher.directory / "tokens";
  ScratchDirectory::write(source, random_bytes(3 * kMebibyte, 2));
  const ChunkTable table = rig.launcher.agent->offer(source);
  TransferHost& host = *rig.hosts[0];
  auto first = rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "a"));
  EXPECT_EQ(get_soon(first), 3 * kMebibyte);
  rig.restart(0);
  auto second = rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "b"));
  EXPECT_EQ(get_soon(second), 0U);
  EXPECT_EQ(ScratchDirectory::read(host.directory / "b"), ScratchDirectory::read(source));
}

TEST(TransferAgent, FetchesOnlyRequestedChunks) {
  TransferRig rig(1);
  const std::string bytes = random_bytes(10 * kMebibyte, 3);
  const auto source = rig.launcher.directory / "weights";
  ScratchDirectory::write(source, bytes);
  FetchRequest request = all_of(rig.launcher.agent->offer(source), {});
  const std::vector<ByteRange> ranges = {{0, 100}, {5 * kMebibyte + 10, 6 * kMebibyte + 10}};
  request.chunks = ChunkSet::holding(request.table, ranges);
  TransferHost& host = *rig.hosts[0];
  request.path = host.directory / "weights";
  auto done = rig.launcher.agent->fetch_on(host.name, request);
  EXPECT_EQ(get_soon(done), 3 * kMebibyte);
  const std::string there = ScratchDirectory::read(request.path);
  ASSERT_EQ(there.size(), bytes.size());
  for (const ByteRange& range : ranges) {
    const auto length = range.end - range.begin;
    EXPECT_EQ(there.substr(range.begin, length), bytes.substr(range.begin, length));
  }
  EXPECT_EQ(there.substr(kMebibyte, kMebibyte), std::string(kMebibyte, '\0'));
}

TEST(TransferAgent, LauncherFetchesFileFromHost) {
  TransferRig rig(2);
  TransferHost& host = *rig.hosts[1];
  const std::string bytes = random_bytes(5 * kMebibyte + 1, 4);
  ScratchDirectory::write(host.directory / "shard", bytes);
  auto table = rig.launcher.agent->stat(host.name, host.directory / "shard");
  FetchRequest request = all_of(get_soon(table), rig.launcher.directory / "checkpoints/shard");
  request.as = FetchRequest::As::file;
  EXPECT_EQ(rig.launcher.agent->fetch(request, {host.name}, [] {}), bytes.size());
  EXPECT_EQ(ScratchDirectory::read(request.path), bytes);
  EXPECT_FALSE(std::filesystem::is_symlink(request.path));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(request.path.parent_path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

TEST(TransferAgent, NamesHostWhereFileIsMissing) {
  TransferRig rig(1);
  auto table = rig.launcher.agent->stat(rig.hosts[0]->name, "/no/such/file");
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input, [&] { get_soon(table); }),
              testing::AllOf(testing::HasSubstr("agent.0"), testing::HasSubstr("/no/such/file")));
}

TEST(TransferAgent, RequestsFailWhenHostEnds) {
  TransferRig rig(1);
  ChunkTable table = rig.offer(random_bytes(kMebibyte, 5));
  table.chunks[0] = table.chunks[0] == '0' ? '1' : '0';  // no host has this chunk
  auto fetch = rig.launcher.agent->fetch_on(rig.hosts[0]->name,
                                            all_of(table, rig.hosts[0]->directory / "big"));
  rig.hosts[0]->stop();
  EXPECT_THROW(get_soon(fetch), base::UserError);
}

TEST(TransferAgent, FetchesChunkElsewhereAfterWrongHash) {
  TransferRig rig(1);
  const std::string bytes = random_bytes(10 * kMebibyte, 8);
  const ChunkTable table = rig.offer(bytes);
  TransferHost& host = *rig.hosts[0];
  const net::ProcessName wrong = net::ProcessName::host_agent(9);
  const auto link = TransferRig::link_peer(host, wrong);
  auto done =
      rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "file"), wrong);
  const auto get = receive_next<message::Get>(*link);
  const std::vector<std::byte> zeros(table.bytes(get.chunk));
  link->send(message::format(message::Chunk{get.id, get.chunk, zeros}));
  EXPECT_EQ(get_soon(done), bytes.size());
  EXPECT_EQ(ScratchDirectory::read(host.directory / "file"), bytes);
}

// What a source lacks, or does not send in time, comes from the launcher.
TEST(TransferAgent, FetchesFromLauncherWhatTheSourceDoesNotSend) {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(1);
  TransferRig rig(1, options);
  const std::string bytes = random_bytes(6 * kMebibyte, 8);
  const ChunkTable table = rig.offer(bytes);
  TransferHost& host = *rig.hosts[0];
  const net::ProcessName silent = net::ProcessName::host_agent(9);
  const auto link = TransferRig::link_peer(host, silent);
  auto done = rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "a"), silent);
  const auto get = receive_next<message::Get>(*link);
  link->send(message::format(message::Missing{get.id, get.chunk}));
  EXPECT_EQ(get_soon(done), bytes.size());
  EXPECT_EQ(ScratchDirectory::read(host.directory / "a"), bytes);
  const net::ProcessName unknown = net::ProcessName::host_agent(8);
  auto again =
      rig.launcher.agent->fetch_on(host.name, all_of(table, host.directory / "b"), unknown);
  EXPECT_EQ(get_soon(again), 0U);
}

// Each waits for the other: neither makes progress, so both ask the launcher.
TEST(TransferAgent, HostsThatAreEachOthersSourceFetchFromTheLauncher) {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(1);
  TransferRig rig(2, options);
  const std::string bytes = random_bytes(6 * kMebibyte, 9);
  const ChunkTable table = rig.offer(bytes);
  std::vector<std::future<std::uint64_t>> fetches;
  for (const std::size_t i : {0U, 1U}) {
    fetches.push_back(rig.launcher.agent->fetch_on(
        rig.hosts[i]->name, all_of(table, rig.hosts[i]->directory / "in"), rig.hosts[1 - i]->name));
  }
  for (auto& fetch : fetches) EXPECT_EQ(get_soon(fetch), bytes.size());
}

// The request of the one may be here before the command to the other.
TEST(TransferAgent, SourceWaitsForItsOwnCommand) {
  TransferRig rig(2);
  const std::string bytes = random_bytes(2 * kMebibyte, 14);
  const ChunkTable table = rig.offer(bytes);
  const auto link = TransferRig::link_peer(*rig.hosts[0], net::ProcessName::host_agent(9));
  link->send(message::format(message::Get{table.id(), 1}));
  auto done = rig.launcher.agent->fetch_on(rig.hosts[0]->name,
                                           all_of(table, rig.hosts[0]->directory / "in"));
  EXPECT_EQ(receive_next<message::Chunk>(*link).content.size(), kMebibyte);
  get_soon(done);
}

TEST(TransferAgent, ReportsBytesThatNoHostHas) {
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(1);
  TransferRig rig(1, options);
  const auto source = rig.launcher.directory / "file";
  ScratchDirectory::write(source, random_bytes(2 * kMebibyte, 6));
  const ChunkTable table = rig.launcher.agent->offer(source);
  ScratchDirectory::write(source, random_bytes(2 * kMebibyte, 7));  // replaced by another file
  auto fetch = rig.launcher.agent->fetch_on(rig.hosts[0]->name,
                                            all_of(table, rig.hosts[0]->directory / "file"));
  EXPECT_THAT(base::user_error(base::ExitCode::stalled, [&] { get_soon(fetch); }),
              testing::HasSubstr("2097152 of 2097152 bytes are missing"));
}

TEST(TransferAgent, ReportsFullDiskBeforeTransfer) {
  TransferRig rig(1);
  const std::filesystem::space_info space = std::filesystem::space(rig.launcher.directory.path());
  ChunkTable table;
  table.chunks.assign((space.capacity / ChunkTable::kChunkBytes + 1) * ChunkTable::kDigits, 'a');
  table.size = table.count() * ChunkTable::kChunkBytes;
  table.whole.assign(ChunkTable::kDigits, 'a');
  auto fetch = rig.launcher.agent->fetch_on(rig.hosts[0]->name,
                                            all_of(table, rig.hosts[0]->directory / "huge"));
  EXPECT_THAT(base::user_error(base::ExitCode::storage_full, [&] { get_soon(fetch); }),
              testing::HasSubstr(std::to_string(table.size) + " bytes are needed"));
}

// Host agents restart at random while several of them fetch several files. In the end every file is
// complete.
class RandomRestarts : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomRestarts, KeepContentRight) {
  std::mt19937_64 generator(GetParam());
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(generator() % n); };
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(6);  // for hosts that wait for each other
  TransferRig rig(2 + below(3), options);
  std::vector<std::string> contents;
  std::vector<ChunkTable> tables;
  for (std::size_t file = 0; file < 3; ++file) {
    contents.push_back(random_bytes(1 + below(8 * kMebibyte), generator()));
    const auto path = rig.launcher.directory / std::to_string(file);
    ScratchDirectory::write(path, contents.back());
    tables.push_back(rig.launcher.agent->offer(path));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::future<std::uint64_t>> fetches;
    for (const auto& host : rig.hosts) {
      const std::size_t file = below(tables.size());
      const net::ProcessName source = rig.hosts[below(rig.hosts.size())]->name;
      fetches.push_back(rig.launcher.agent->fetch_on(
          host->name, all_of(tables[file], host->directory / std::to_string(file)),
          source == host->name ? std::nullopt : std::optional(source)));
    }
    rig.restart(below(rig.hosts.size()));
    for (auto& fetch : fetches) {
      // The restarted host's command fails, or was done before.
      try {
        get_soon(fetch);
      } catch (const base::UserError&) {
      }
    }
  }
  for (const auto& host : rig.hosts) {
    for (std::size_t file = 0; file < tables.size(); ++file) {
      const auto path = host->directory / ("final" + std::to_string(file));
      auto fetch = rig.launcher.agent->fetch_on(host->name, all_of(tables[file], path));
      get_soon(fetch);
      EXPECT_EQ(ScratchDirectory::read(path), contents[file]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRestarts, testing::Range<std::uint64_t>(1, 13));

// A file of its own comes from the other host alone, and both can lose it: the launcher gets it
// from whoever is left.
TEST(TransferAgent, CopiesFileToAnotherHost) {
  TransferRig rig(2);
  const std::string bytes = random_bytes(3 * kMebibyte + 5, 11);
  TransferHost& owner = *rig.hosts[0];
  TransferHost& neighbour = *rig.hosts[1];
  ScratchDirectory::write(owner.directory / "shard", bytes);
  auto found = rig.launcher.agent->stat(owner.name, owner.directory / "shard");
  FetchRequest request = all_of(get_soon(found), neighbour.directory / "copy");
  request.as = FetchRequest::As::file;
  auto copied = rig.launcher.agent->fetch_on(neighbour.name, request, owner.name);
  EXPECT_EQ(get_soon(copied), bytes.size());
  EXPECT_TRUE(std::filesystem::is_regular_file(
      std::filesystem::symlink_status(neighbour.directory / "copy")));
  owner.stop();
  auto there = rig.launcher.agent->stat(neighbour.name, request.path);
  request = all_of(get_soon(there), rig.launcher.directory / "saved");
  request.as = FetchRequest::As::file;
  EXPECT_EQ(rig.launcher.agent->fetch(request, {neighbour.name}, [] {}), bytes.size());
  EXPECT_EQ(ScratchDirectory::read(request.path), bytes);
}

// A checkpoint on disk and in memory.
TEST(TransferAgent, FilesOfTheSameBytesAreOfferedApart) {
  TransferRig rig(1);
  const TransferHost& host = *rig.hosts[0];
  const std::string bytes = random_bytes(kMebibyte, 12);
  FetchRequest request;
  for (const char* name : {"disk", "memory"}) {
    ScratchDirectory::write(host.directory / name, bytes);
    auto found = rig.launcher.agent->stat(host.name, host.directory / name);
    request = all_of(get_soon(found), rig.launcher.directory / "saved");
  }
  request.as = FetchRequest::As::file;
  std::filesystem::remove(host.directory / "memory");
  EXPECT_EQ(rig.launcher.agent->fetch(request, {host.name}, [] {}), bytes.size());
}

}  // namespace
}  // namespace strait::transfer
