#include "launcher/transfer/transfer_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/user_error.h"
#include "tests/launcher/transfer/transfer_rig.h"

namespace strait::transfer {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

FetchRequest all_of(const ChunkTable& table, const std::filesystem::path& path) {
  return {table, ChunkSet::all(table.count()), path, FetchRequest::As::content};
}

TEST(TransferAgent, EveryHostGetsTheFileAndTheyHelpEachOther) {
  TransferRig rig(3);
  const std::string bytes = random_bytes(24 * kMebibyte + 77, 1);
  const auto source = rig.launcher.directory / "model";
  store::write_bytes(source, bytes);
  const ChunkTable table = rig.launcher.porter->offer(source);

  std::vector<std::future<std::uint64_t>> orders;
  for (const auto& keeper : rig.keepers) {
    orders.push_back(
        rig.launcher.porter->bring(keeper->name, all_of(table, keeper->directory / "in/model")));
  }
  for (auto& order : orders) EXPECT_EQ(soon(order), bytes.size());
  std::uint64_t sent = rig.launcher.porter->state().sent_bytes;
  for (const auto& keeper : rig.keepers) {
    EXPECT_EQ(store::read_bytes(keeper->directory / "in/model"), bytes);
    const TransferTotals state = keeper->porter->state();
    EXPECT_EQ(state.repeated_bytes, 0U);
    sent += state.sent_bytes;
  }
  EXPECT_EQ(sent, 3 * bytes.size());
  EXPECT_LT(rig.launcher.porter->state().sent_bytes, 3 * bytes.size());
}

TEST(TransferAgent, AHostThatHasTheContentFetchesNothing) {
  TransferRig rig(1);
  const auto source = rig.launcher.directory / "tokens";
  store::write_bytes(source, random_bytes(3 * kMebibyte, 2));
  const ChunkTable table = rig.launcher.porter->offer(source);
  TransferHost& host = *rig.keepers[0];
  auto first = rig.launcher.porter->bring(host.name, all_of(table, host.directory / "a"));
  EXPECT_EQ(soon(first), 3 * kMebibyte);
  rig.restart(0);
  auto second = rig.launcher.porter->bring(host.name, all_of(table, host.directory / "b"));
  EXPECT_EQ(soon(second), 0U);
  EXPECT_EQ(store::read_bytes(host.directory / "b"), store::read_bytes(source));
}

TEST(TransferAgent, OfAPartOnlyItsChunksTravel) {
  TransferRig rig(1);
  const std::string bytes = random_bytes(10 * kMebibyte, 3);
  const auto source = rig.launcher.directory / "weights";
  store::write_bytes(source, bytes);
  FetchRequest order = all_of(rig.launcher.porter->offer(source), {});
  const std::vector<ByteRange> ranges = {{0, 100}, {5 * kMebibyte + 10, 6 * kMebibyte + 10}};
  order.chunks = ChunkSet::holding(order.table, ranges);
  TransferHost& host = *rig.keepers[0];
  order.path = host.directory / "weights";
  auto done = rig.launcher.porter->bring(host.name, order);
  EXPECT_EQ(soon(done), 3 * kMebibyte);
  const std::string there = store::read_bytes(order.path);
  ASSERT_EQ(there.size(), bytes.size());
  for (const ByteRange& range : ranges) {
    const auto length = range.end - range.begin;
    EXPECT_EQ(there.substr(range.begin, length), bytes.substr(range.begin, length));
  }
  EXPECT_EQ(there.substr(kMebibyte, kMebibyte), std::string(kMebibyte, '\0'));
}

TEST(TransferAgent, TheLauncherGathersAFileFromAKeeper) {
  TransferRig rig(2);
  TransferHost& host = *rig.keepers[1];
  const std::string bytes = random_bytes(5 * kMebibyte + 1, 4);
  store::write_bytes(host.directory / "shard", bytes);
  auto seen = rig.launcher.porter->look(host.name, host.directory / "shard");
  FetchRequest order = all_of(soon(seen), rig.launcher.directory / "checkpoints/shard");
  order.as = FetchRequest::As::file;
  auto fetching = rig.launcher.porter->fetch(order);
  EXPECT_EQ(soon(fetching.fetched), bytes.size());
  EXPECT_EQ(store::read_bytes(order.path), bytes);
  EXPECT_FALSE(std::filesystem::is_symlink(order.path));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(order.path.parent_path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

TEST(TransferAgent, WhatAHostLacksIsSaidWithItsName) {
  TransferRig rig(1);
  auto seen = rig.launcher.porter->look(rig.keepers[0]->name, "/no/such/file");
  try {
    soon(seen);
    FAIL() << "a file that is not there was seen";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::bad_input);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("keeper.0"),
                                             testing::HasSubstr("/no/such/file")));
  }
}

TEST(TransferAgent, OrdersEndWhenTheKeeperIsGone) {
  TransferRig rig(1);
  const auto source = rig.launcher.directory / "big";
  store::write_bytes(source, random_bytes(kMebibyte, 5));
  ChunkTable table = rig.launcher.porter->offer(source);
  table.chunks[0] = table.chunks[0] == '0' ? '1' : '0';  // nobody has that one
  auto order = rig.launcher.porter->bring(rig.keepers[0]->name,
                                          all_of(table, rig.keepers[0]->directory / "big"));
  rig.keepers[0]->stop();
  EXPECT_THROW(soon(order), base::UserError);
}

TEST(TransferAgent, AKeeperTakesNoOrdersFromAnother) {
  TransferRig rig(2);
  auto seen = rig.keepers[0]->porter->look(rig.keepers[1]->name, "/etc/hostname");
  EXPECT_THROW(soon(seen), base::UserError);
}

TEST(TransferAgent, WhatNobodyHasEndsWithASentence) {
  TransferAgentOptions options;
  options.patience = std::chrono::seconds(1);
  TransferRig rig(1, options);
  const auto source = rig.launcher.directory / "file";
  store::write_bytes(source, random_bytes(2 * kMebibyte, 6));
  const ChunkTable table = rig.launcher.porter->offer(source);
  store::write_bytes(source, random_bytes(2 * kMebibyte, 7));  // it is another one now
  auto order = rig.launcher.porter->bring(rig.keepers[0]->name,
                                          all_of(table, rig.keepers[0]->directory / "file"));
  try {
    soon(order);
    FAIL() << "what nobody has was brought";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::stalled);
    EXPECT_THAT(error.what(), testing::HasSubstr("2097152 of 2097152 bytes are still missing"));
  }
}

TEST(TransferAgent, AFullDiskIsSaidBeforeAnythingTravels) {
  TransferRig rig(1);
  const std::filesystem::space_info space = std::filesystem::space(rig.launcher.directory.path());
  ChunkTable table;
  table.chunks.assign((space.capacity / ChunkTable::kChunkBytes + 1) * ChunkTable::kDigits, 'a');
  table.size = table.count() * ChunkTable::kChunkBytes;
  table.whole.assign(ChunkTable::kDigits, 'a');
  auto order = rig.launcher.porter->bring(rig.keepers[0]->name,
                                          all_of(table, rig.keepers[0]->directory / "huge"));
  try {
    soon(order);
    FAIL() << "more than the disk found room";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::storage_full);
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(table.size) + " bytes are needed"));
  }
}

// Keepers that stop and start again at random while several of them fetch several files: in the end
// all is where it belongs, and no chunk came twice to a process that had it.
class PorterLaw : public testing::TestWithParam<std::uint64_t> {};

TEST_P(PorterLaw, WhateverStopsTheContentIsRightAndNoChunkComesTwice) {
  std::mt19937_64 generator(GetParam());
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(generator() % n); };
  TransferRig rig(2 + below(3));
  std::vector<std::string> contents;
  std::vector<ChunkTable> tables;
  for (std::size_t file = 0; file < 3; ++file) {
    contents.push_back(random_bytes(1 + below(8 * kMebibyte), generator()));
    const auto path = rig.launcher.directory / std::to_string(file);
    store::write_bytes(path, contents.back());
    tables.push_back(rig.launcher.porter->offer(path));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::future<std::uint64_t>> orders;
    for (const auto& keeper : rig.keepers) {
      const std::size_t file = below(tables.size());
      orders.push_back(rig.launcher.porter->bring(
          keeper->name, all_of(tables[file], keeper->directory / std::to_string(file))));
    }
    rig.restart(below(rig.keepers.size()));
    for (auto& order : orders) {
      // That of the one which was stopped ends with an error, or was done before.
      try {
        soon(order);
      } catch (const base::UserError&) {
      }
    }
  }
  for (const auto& keeper : rig.keepers) {
    for (std::size_t file = 0; file < tables.size(); ++file) {
      const auto path = keeper->directory / ("final" + std::to_string(file));
      auto order = rig.launcher.porter->bring(keeper->name, all_of(tables[file], path));
      soon(order);
      EXPECT_EQ(store::read_bytes(path), contents[file]);
    }
    EXPECT_EQ(keeper->porter->state().repeated_bytes, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PorterLaw, testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace strait::transfer
