#include "framework/sync/frame_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "tests/framework/sync/replica_set.h"

namespace strait::sync {
namespace {

using std::chrono::steady_clock;

constexpr auto kForever = steady_clock::time_point::max();

net::Frame frame_of(std::size_t bytes, std::mt19937_64& random) {
  net::Frame frame(bytes);
  for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
  return frame;
}

// A relay with its readers, as processes of one host would have it.
struct Relay {
  explicit Relay(std::size_t count) {
    net::SharedMemory memory = FrameRelay::memory_for(count);
    for (std::size_t i = 0; i < count; ++i) {
      readers.push_back(
          std::make_unique<FrameRelay>(FrameRelay::open(memory.key(), count, 0), count, i));
    }
    writer = std::make_unique<FrameRelay>(std::move(memory), count);
  }
  std::unique_ptr<FrameRelay> writer;
  std::vector<std::unique_ptr<FrameRelay>> readers;
};

// Empty ones, and ones that are larger than the memory between them.
TEST(FrameRelay, GivesEveryReaderEveryFrameInOrder) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<net::Frame> frames = {{}, frame_of(21U << 20U, random), {}};
  for (int i = 0; i < 200; ++i) frames.push_back(frame_of(random() % 300'000, random));
  Relay relay(3);
  std::vector<std::future<bool>> same;
  for (auto& reader : relay.readers) {
    same.push_back(std::async(std::launch::async, [&frames, &reader, pace = random()] {
      std::mt19937_64 own(pace);
      for (std::size_t i = 0; i < frames.size();) {
        // Some reads give up in the middle of a frame.
        const auto deadline = own() % 2 == 0 ? kForever : steady_clock::now();
        const auto got = reader->read(deadline);
        if (!got) continue;
        if (got->frame != frames[i] || got->source != i % 7) return false;
        ++i;
      }
      return !reader->read(steady_clock::now()).has_value();
    }));
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    relay.writer->write(static_cast<std::uint32_t>(i % 7), frames[i]);
  }
  for (auto& one : same) EXPECT_TRUE(one.get());
}

TEST(FrameRelay, EndsReadersWhenItsWriterIsGone) {
  Relay relay(1);
  relay.writer->write(4, net::Frame(10));
  auto& reader = *relay.readers[0];
  relay.writer.reset();
  EXPECT_EQ(reader.read(kForever)->frame.size(), 10);
  for (int again = 0; again < 2; ++again) {
    try {
      reader.read(kForever);
      ADD_FAILURE() << "it has read more than was written";
    } catch (const net::LinkError& error) {
      EXPECT_EQ(error.kind(), net::LinkError::Kind::lost);
    }
  }
}

TEST(FrameRelay, DoesNotWaitForReadersThatAreGone) {
  Relay relay(2);
  relay.readers[1].reset();
  auto reads = std::async(std::launch::async,
                          [&] { return relay.readers[0]->read(kForever)->frame.size(); });
  relay.writer->write(0, net::Frame(30U << 20U));
  EXPECT_EQ(reads.get(), 30U << 20U);
}

TEST(FrameRelay, EndsWaitsOnAbort) {
  Relay relay(1);
  const net::LinkError cause(net::LinkError::Kind::aborted, "the stage ends");
  const auto thrown = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const net::LinkError& error) {
      return error.what();
    }
    return "";
  };
  // There is no room for it, since it is not read.
  auto writes = std::async(std::launch::async, [&] {
    return thrown([&] { relay.writer->write(0, net::Frame(20U << 20U)); });
  });
  relay.writer->abort(cause);
  EXPECT_EQ(writes.get(), "the stage ends");
  Relay silent(1);
  auto reads = std::async(std::launch::async,
                          [&] { return thrown([&] { silent.readers[0]->read(kForever); }); });
  silent.readers[0]->abort(cause);
  EXPECT_EQ(reads.get(), "the stage ends");
}

net::Frame text(const std::string& text) {
  net::Frame frame;
  for (const char letter : text) frame.push_back(static_cast<std::byte>(letter));
  return frame;
}

// Replicas 0 and 1 are a group, 2 and 3 are others. What 1 asks for first came last.
TEST(RelayedLinks, GiveFollowersWhatTheirLeaderReceivedByItsSource) {
  auto mesh = replica_mesh(4);
  Relay relay(1);
  const net::Link* const to_third = mesh[0][2].get();
  const auto leader = leader_links(std::move(mesh[0]), *relay.writer);
  EXPECT_EQ(leader[2]->underlying(), to_third);
  const auto follower =
      follower_links(Membership{0, {0, 2, 3}, 0}, *relay.readers[0], mesh[1][0].get());
  ASSERT_EQ(follower.size(), 4);
  EXPECT_EQ(follower[2]->underlying(), mesh[1][0].get());
  EXPECT_EQ(follower[0], nullptr);
  EXPECT_EQ(follower[1], nullptr);
  mesh[2][0]->send(text("a"));
  mesh[2][0]->send(text("b"));
  mesh[3][0]->send(text("c"));
  EXPECT_EQ(leader[2]->receive(), text("a"));
  EXPECT_EQ(leader[2]->receive_until(kForever), text("b"));
  EXPECT_EQ(leader[3]->receive(), text("c"));
  EXPECT_EQ(follower[3]->receive(), text("c"));
  EXPECT_EQ(follower[2]->receive(), text("a"));
  EXPECT_EQ(follower[2]->receive_until(steady_clock::now()), text("b"));
  EXPECT_EQ(follower[2]->receive_until(steady_clock::now()), std::nullopt);
  // The leader sends it.
  follower[2]->send(text("d"));
  EXPECT_EQ(mesh[2][0]->receive_until(steady_clock::now()), std::nullopt);
  EXPECT_EQ(follower[2]->state().sent_bytes, 0);
  leader[2]->send(text("d"));
  EXPECT_EQ(mesh[2][0]->receive(), text("d"));
}

TEST(ReplicaGroups, AreMembersOfTheMethodByTheirLeaders) {
  const ReplicaGroups groups = {{0, 2}, {1}, {3, 4}};
  EXPECT_EQ(group_of(groups, 4), (Membership{0, {3, 4}, 1}));
  EXPECT_EQ(group_of(groups, 1), (Membership{0, {1}, 0}));
  EXPECT_EQ(leaders_of(groups, 4), (Membership{0, {0, 1, 3}, 2}));
  EXPECT_EQ(leaders_of(groups, 2), (Membership{0, {0, 1, 3}, 0}));
  EXPECT_EQ(groups_text(groups), "0, 2 | 1 | 3, 4");
  EXPECT_EQ(separate_replicas(3), (ReplicaGroups{{0}, {1}, {2}}));
}

}  // namespace
}  // namespace strait::sync
