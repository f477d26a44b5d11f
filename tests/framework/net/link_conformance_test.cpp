// The promise of Link, held by every carrier: one instantiation line makes a new one inherit it
// all.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using Kind = LinkError::Kind;
using MakePair = std::unique_ptr<LinkPair> (*)(const EndSetup&, const EndSetup&);

class LinkConformance : public testing::TestWithParam<MakePair> {
 protected:
  std::unique_ptr<LinkPair> make(const EndSetup& left = {}, const EndSetup& right = {}) {
    return GetParam()(left, right);
  }
};

TEST_P(LinkConformance, FramesArriveOnceAndInOrder) {
  const auto pair = make();
  constexpr int kFrames = 500;
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) pair->left->send(numbered_frame(i, i * 37 % 5000));
  });
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_EQ(pair->right->receive(), numbered_frame(i, i * 37 % 5000)) << "frame " << i;
  }
  sender.join();
  EXPECT_FALSE(pair->right->receive_until(in_seconds(0.05))) << "a frame came that was never sent";
}

TEST_P(LinkConformance, FramesOfNoBytesCount) {
  const auto pair = make();
  pair->left->send({});
  pair->left->send(numbered_frame(1, 3));
  pair->left->send({});
  EXPECT_EQ(pair->right->receive().size(), 0u);
  EXPECT_EQ(pair->right->receive().size(), 3u);
  EXPECT_EQ(pair->right->receive().size(), 0u);
}

TEST_P(LinkConformance, FrameLargerThanFragmentAndWindowPassesAlone) {
  const auto pair = make();
  const Frame large = numbered_frame(7, (3 << 20) + 1);
  pair->left->send(large);
  EXPECT_EQ(pair->right->receive(), large);
  pair->left->send(numbered_frame(8, 10));
  EXPECT_EQ(pair->right->receive(), numbered_frame(8, 10));
}

TEST_P(LinkConformance, SenderWaitsForRoomInTheWindowAndGoesOnWhenTheReceiverDrains) {
  EndSetup narrow;
  narrow.window_bytes = 100'000;
  const auto pair = make(narrow, narrow);
  constexpr int kFrames = 20;
  std::atomic<int> sent{0};
  std::thread sender([&] {
    for (; sent < kFrames; ++sent) pair->left->send(numbered_frame(sent, 30'000));
  });
  // Three frames fit. The fourth must not pass however long the other side does not receive: what
  // has arrived there shows that there was time for it.
  while (pair->right->state().received_bytes < 90'000 || sent < 3) std::this_thread::yield();
  const auto deadline = in_seconds(0.2);
  while (std::chrono::steady_clock::now() < deadline && sent == 3) std::this_thread::yield();
  EXPECT_EQ(sent, 3);
  EXPECT_LE(pair->left->state().window_bytes, 100'000u);
  for (int i = 0; i < kFrames; ++i) ASSERT_EQ(pair->right->receive(), numbered_frame(i, 30'000));
  sender.join();
  EXPECT_EQ(sent, kFrames);
}

TEST_P(LinkConformance, WhatFindsNoRoomByTheDeadlineIsNotSentAndStaysTheCallers) {
  EndSetup narrow;
  narrow.window_bytes = 100'000;
  const auto pair = make(narrow, narrow);
  pair->left->send(numbered_frame(0, 80'000));
  Frame frame = numbered_frame(1, 30'000);
  EXPECT_FALSE(pair->left->send_until(frame, in_seconds(0.05)));
  EXPECT_EQ(frame, numbered_frame(1, 30'000));
  EXPECT_EQ(pair->right->receive(), numbered_frame(0, 80'000));
  EXPECT_FALSE(pair->right->receive_until(in_seconds(0.05)));
  EXPECT_TRUE(pair->left->send_until(frame, in_seconds(20)));
  EXPECT_EQ(pair->right->receive(), numbered_frame(1, 30'000));
}

TEST_P(LinkConformance, NothingArrivedByTheDeadlineIsNoError) {
  const auto pair = make();
  EXPECT_FALSE(pair->left->receive_until(in_seconds(0.02)));
  pair->right->send(numbered_frame(1, 100));
  EXPECT_EQ(pair->left->receive(), numbered_frame(1, 100));
}

TEST_P(LinkConformance, FlushReturnsWhenAllHasReachedThePeer) {
  const auto pair = make();
  for (int i = 0; i < 10; ++i) pair->left->send(numbered_frame(i, 50'000));
  EXPECT_TRUE(pair->left->flush(in_seconds(20)));
  EXPECT_GE(pair->right->state().received_bytes, 500'000u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pair->right->receive(), numbered_frame(i, 50'000));
}

TEST_P(LinkConformance, AbortReachesTheOtherSideWithItsWordsAndStays) {
  const auto pair = make();
  pair->left->send(numbered_frame(0, 10));
  EXPECT_EQ(pair->right->receive(), numbered_frame(0, 10));
  pair->left->abort({Kind::aborted, "loss is NaN in step 7"});

  const LinkError there = error_of([&] { pair->right->receive(); });
  EXPECT_EQ(there.kind(), Kind::aborted);
  EXPECT_NE(std::string(there.what()).find("loss is NaN in step 7"), std::string::npos);
  EXPECT_NE(std::string(there.what()).find("stage 0.0"), std::string::npos) << there.what();

  const LinkError here = error_of([&] { pair->left->receive(); });
  EXPECT_STREQ(here.what(), "loss is NaN in step 7");
}

TEST_P(LinkConformance, DeadLinkAnswersEveryLaterCallWithTheSameError) {
  const auto pair = make();
  pair->left->abort({Kind::aborted, "the first cause"});
  pair->left->abort({Kind::lost, "a later one"});
  for (int i = 0; i < 3; ++i) {
    for (const LinkError& error :
         {error_of([&] { pair->left->send(numbered_frame(0, 1)); }),
          error_of([&] { pair->left->receive(); }),
          error_of([&] { pair->left->receive_until(in_seconds(1)); }), error_of([&] {
            Frame frame = numbered_frame(0, 1);
            pair->left->send_until(frame, in_seconds(1));
          }),
          error_of([&] { pair->left->flush(in_seconds(1)); })}) {
      EXPECT_EQ(error.kind(), Kind::aborted);
      EXPECT_STREQ(error.what(), "the first cause");
    }
  }
  EXPECT_FALSE(pair->left->state().connected);
}

TEST_P(LinkConformance, AbortWakesWaiters) {
  EndSetup narrow;
  narrow.window_bytes = 1000;
  const auto pair = make(narrow, narrow);
  pair->left->send(numbered_frame(0, 900));
  std::thread sender([&] {
    EXPECT_EQ(error_of([&] { pair->left->send(numbered_frame(1, 900)); }).kind(), Kind::aborted);
  });
  std::thread receiver(
      [&] { EXPECT_EQ(error_of([&] { pair->left->receive(); }).kind(), Kind::aborted); });
  pair->right->abort({Kind::aborted, "stop"});
  sender.join();
  receiver.join();
}

TEST_P(LinkConformance, FramesThatArrivedBeforeDeathAreStillDelivered) {
  const auto pair = make();
  pair->left->send(numbered_frame(0, 1000));
  pair->left->send(numbered_frame(1, 1000));
  ASSERT_TRUE(pair->left->flush(in_seconds(20)));
  pair->left->abort({Kind::aborted, "enough"});
  while (pair->right->state().connected) std::this_thread::yield();
  EXPECT_EQ(pair->right->receive(), numbered_frame(0, 1000));
  EXPECT_EQ(pair->right->receive(), numbered_frame(1, 1000));
  EXPECT_EQ(error_of([&] { pair->right->receive(); }).kind(), Kind::aborted);
}

TEST_P(LinkConformance, ClosingOneEndEndsTheOther) {
  const auto pair = make();
  pair->left->send(numbered_frame(0, 1000));
  ASSERT_TRUE(pair->left->flush(in_seconds(20)));
  pair->left.reset();
  EXPECT_EQ(pair->right->receive(), numbered_frame(0, 1000));
  const LinkError error = error_of([&] { pair->right->receive(); });
  EXPECT_EQ(error.kind(), Kind::lost);
  EXPECT_NE(std::string(error.what()).find("closed"), std::string::npos) << error.what();
}

TEST_P(LinkConformance, TermsThatDifferAreRefusedWithKeyAndBothValues) {
  EndSetup left;
  EndSetup right;
  left.terms = {{"plan", "1f"}, {"codec", "raw"}};
  right.terms = {{"plan", "1f"}, {"codec", "fixed4"}};
  const auto pair = make(left, right);
  const LinkError here = error_of([&] { pair->left->receive(); });
  const LinkError there = error_of([&] { pair->right->receive(); });
  EXPECT_EQ(here.kind(), Kind::refused);
  EXPECT_EQ(there.kind(), Kind::refused);
  EXPECT_STREQ(here.what(), there.what());
  EXPECT_NE(std::string(here.what())
                .find("stage 0.0 has codec = \"raw\", stage 1.0 has codec = \"fixed4\""),
            std::string::npos)
      << here.what();
}

TEST_P(LinkConformance, TermThatOneEndDoesNotKnowIsRefused) {
  EndSetup right;
  right.terms.emplace_back("cache generation", "3");
  const auto pair = make({}, right);
  const LinkError error = error_of([&] { pair->left->receive(); });
  EXPECT_EQ(error.kind(), Kind::refused);
  EXPECT_NE(std::string(error.what())
                .find("stage 0.0 has no cache generation, stage 1.0 has cache generation = \"3\""),
            std::string::npos)
      << error.what();
}

TEST_P(LinkConformance, OlderGenerationIsFencedOutOnEitherSide) {
  EndSetup older;
  EndSetup newer;
  newer.generation = 2;
  {
    const auto pair = make(older, newer);
    EXPECT_EQ(error_of([&] { pair->left->receive(); }).kind(), Kind::fenced);
  }
  const auto pair = make(newer, older);
  const LinkError error = error_of([&] { pair->right->receive(); });
  EXPECT_EQ(error.kind(), Kind::fenced);
  EXPECT_NE(std::string(error.what()).find("stage 1.0 is of generation 1"), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("generation 2"), std::string::npos);
}

TEST_P(LinkConformance, TrafficBothWaysAtOnceKeepsItsOrder) {
  const auto pair = make();
  constexpr int kFrames = 300;
  const auto send_all = [](Link& link, int salt) {
    for (int i = 0; i < kFrames; ++i) link.send(numbered_frame(i + salt, 1 + i * 211 % 90'000));
  };
  const auto receive_all = [](Link& link, int salt) {
    for (int i = 0; i < kFrames; ++i) {
      ASSERT_EQ(link.receive(), numbered_frame(i + salt, 1 + i * 211 % 90'000)) << "frame " << i;
    }
  };
  std::thread left_sender(send_all, std::ref(*pair->left), 1000);
  std::thread right_sender(send_all, std::ref(*pair->right), 5000);
  std::thread left_receiver(receive_all, std::ref(*pair->left), 5000);
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    while (!done) EXPECT_EQ(pair->left->state().name, "boundary 0>1");
  });
  receive_all(*pair->right, 1000);
  left_sender.join();
  right_sender.join();
  left_receiver.join();
  done = true;
  watcher.join();
}

// Room that is made in time counts, even when the sender wakes only after its deadline. Over a wire
// it is not known when the sender learns of it.
TEST(MemoryLink, RoomThatIsMadeBeforeTheDeadlineIsUsed) {
  using Clock = std::chrono::steady_clock;
  EndSetup narrow;
  narrow.window_bytes = 1000;
  const auto pair = make_memory_pair(narrow, narrow);
  int in_time = 0;
  for (int i = 0; i < 200; ++i) {
    pair->left->send(numbered_frame(0, 900));
    const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(2);
    bool before_deadline = false;
    std::thread receiver([&] {
      // So late that the sender often wakes after its deadline.
      while (Clock::now() < deadline - std::chrono::microseconds(20)) std::this_thread::yield();
      pair->right->receive();
      before_deadline = Clock::now() < deadline;
    });
    Frame frame = numbered_frame(1, 900);
    const bool sent = pair->left->send_until(frame, deadline);
    receiver.join();
    if (before_deadline) {
      ++in_time;
      EXPECT_TRUE(sent) << "round " << i;
    }
    if (sent) pair->right->receive();
  }
  RecordProperty("received_in_time", in_time);
}

TEST(ZmqFlows, LinkUsesAllThatItsEndsWant) {
  const auto pair = make_flows_pair({}, {});
  const SimulatedPath& path = *static_cast<ZmqPair&>(*pair).path;
  // Fewer bytes than those after which a flow is cut.
  for (int i = 0; i < 200; ++i) {
    pair->left->send(numbered_frame(i, 1000));
    ASSERT_EQ(pair->right->receive(), numbered_frame(i, 1000));
  }
  const auto deadline = in_seconds(20);
  while (path.connections() < 4 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(path.connections(), 4U);
  EXPECT_EQ(pair->left->state().reconnects, 0U);
}

INSTANTIATE_TEST_SUITE_P(Memory, LinkConformance, testing::Values(&make_memory_pair));
INSTANTIATE_TEST_SUITE_P(ZmqCurve, LinkConformance, testing::Values(&make_curve_pair));
INSTANTIATE_TEST_SUITE_P(ZmqPlain, LinkConformance, testing::Values(&make_plain_pair));
INSTANTIATE_TEST_SUITE_P(ZmqBackground, LinkConformance, testing::Values(&make_background_pair));
INSTANTIATE_TEST_SUITE_P(ZmqFlows, LinkConformance, testing::Values(&make_flows_pair));
INSTANTIATE_TEST_SUITE_P(BadPath, LinkConformance, testing::Values(&make_bad_path_pair));
INSTANTIATE_TEST_SUITE_P(SharedMemory, LinkConformance, testing::Values(&make_shared_memory_pair));
INSTANTIATE_TEST_SUITE_P(CutMemory, LinkConformance, testing::Values(&make_cut_memory_pair));

}  // namespace
}  // namespace strait::net
