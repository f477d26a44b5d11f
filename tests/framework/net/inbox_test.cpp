// What an inbox promises of its links, over every carrier.
#include "framework/net/inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "framework/net/replaceable_link.h"
#include "tests/framework/net/link_pair.h"
#include "tests/memory_links.h"

namespace strait::net {
namespace {

using Kind = LinkError::Kind;
using MakePair = std::unique_ptr<LinkPair> (*)(const EndSetup&, const EndSetup&);

const Frame& frame_of(const std::optional<Arrival>& arrival) { return arrival.value().frame(); }

const LinkError& end_of(const std::optional<Arrival>& arrival) {
  return std::get<LinkError>(arrival.value().content);
}

class InboxConformance : public testing::TestWithParam<MakePair> {
 protected:
  // The inbox is on the right side of each link.
  Link& add(std::size_t number, const EndSetup& setup = {}) {
    pairs_.at(number) = GetParam()(setup, setup);
    inbox_.add(number, *pairs_[number]->right);
    return *pairs_[number]->left;
  }

  std::array<std::unique_ptr<LinkPair>, 3> pairs_;
  Inbox inbox_;  // before the links go
};

TEST_P(InboxConformance, FramesOfEachLinkArriveOnceAndInOrder) {
  constexpr std::size_t kFrames = 200;
  std::vector<std::thread> senders;
  for (std::size_t link = 0; link < pairs_.size(); ++link) {
    senders.emplace_back([link, &left = add(link)] {
      for (std::size_t i = 0; i < kFrames; ++i) left.send(numbered_frame(i + link * 1000, i * 37));
    });
  }
  std::array<std::size_t, 3> taken{};
  for (std::size_t all = 0; all < kFrames * pairs_.size(); ++all) {
    const auto arrival = inbox_.take_until(Inbox::Time::max());
    std::size_t& next = taken.at(arrival->link);
    ASSERT_EQ(frame_of(arrival), numbered_frame(next + arrival->link * 1000, next * 37));
    ++next;
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_FALSE(inbox_.take_until(in_seconds(0.05))) << "a frame came that was never sent";
}

TEST_P(InboxConformance, FramesThatAreNotTakenStopTheirSenderAndNoOther) {
  EndSetup narrow;
  narrow.window_bytes = 100'000;
  Link& left = add(0, narrow);
  for (int i = 0; i < 3; ++i) left.send(numbered_frame(i, 30'000));
  Frame fourth = numbered_frame(3, 30'000);
  while (pairs_[0]->right->state().received_bytes < 90'000) std::this_thread::yield();
  EXPECT_FALSE(left.send_until(fourth, in_seconds(0.2)));
  EXPECT_LE(left.state().window_bytes, 100'000U);

  add(1).send(numbered_frame(9, 10));
  for (int taken = 0; taken < 4; ++taken) {
    const auto arrival = inbox_.take_until(Inbox::Time::max());
    if (arrival->link == 1) {
      EXPECT_EQ(frame_of(arrival), numbered_frame(9, 10));
    }
  }
  left.send(std::move(fourth));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(3, 30'000));
}

TEST_P(InboxConformance, EndComesOnceAndAfterTheFrames) {
  Link& first = add(0);
  Link& second = add(1);
  first.send(numbered_frame(1, 10));
  ASSERT_TRUE(first.flush(in_seconds(20)));
  first.abort(LinkError(Kind::aborted, "enough"));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(1, 10));
  const auto end = inbox_.take_until(Inbox::Time::max());
  EXPECT_EQ(end->link, 0U);
  EXPECT_EQ(end_of(end).kind(), Kind::aborted);
  EXPECT_NE(std::string(end_of(end).what()).find("enough"), std::string::npos);
  second.send(numbered_frame(2, 10));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(2, 10));
  EXPECT_FALSE(inbox_.take_until(in_seconds(0.05)));
  add(0).send(numbered_frame(3, 10));  // its number is free again
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(3, 10));
}

TEST_P(InboxConformance, WakeEndsOneWait) {
  add(0);
  auto woken =
      std::async(std::launch::async, [this] { return inbox_.take_until(Inbox::Time::max()); });
  inbox_.wake();
  EXPECT_FALSE(woken.get());
  inbox_.wake();
  EXPECT_FALSE(inbox_.take_until(Inbox::Time::max()));
  pairs_[0]->left->send(numbered_frame(1, 10));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(1, 10));
}

TEST_P(InboxConformance, RemovedLinkKeepsItsFramesForTheNextInbox) {
  Link& left = add(0);
  left.send(numbered_frame(1, 10));
  left.send(numbered_frame(2, 10));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(1, 10));
  ASSERT_TRUE(left.flush(in_seconds(20)));
  inbox_.remove(0);
  EXPECT_FALSE(inbox_.take_until(in_seconds(0.05)));
  Inbox other;
  other.add(7, *pairs_[0]->right);
  const auto arrival = other.take_until(Inbox::Time::max());
  EXPECT_EQ(arrival->link, 7U);
  EXPECT_EQ(frame_of(arrival), numbered_frame(2, 10));
}

TEST_P(InboxConformance, ClosedInboxReturnsNothingOnceAllLinksHaveEnded) {
  Link& left = add(0);
  left.send(numbered_frame(1, 10));
  ASSERT_TRUE(left.flush(in_seconds(20)));
  inbox_.close();
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(1, 10));
  left.send(numbered_frame(2, 10));
  EXPECT_EQ(frame_of(inbox_.take_until(Inbox::Time::max())), numbered_frame(2, 10));
  pairs_[0]->right->abort(LinkError(Kind::aborted, "enough"));
  EXPECT_EQ(end_of(inbox_.take_until(Inbox::Time::max())).kind(), Kind::aborted);
  EXPECT_FALSE(inbox_.take_until(Inbox::Time::max()));
}

INSTANTIATE_TEST_SUITE_P(Memory, InboxConformance, testing::Values(make_memory_pair));
INSTANTIATE_TEST_SUITE_P(Encrypted, InboxConformance, testing::Values(make_curve_pair));
INSTANTIATE_TEST_SUITE_P(Plaintext, InboxConformance, testing::Values(make_plain_pair));
INSTANTIATE_TEST_SUITE_P(Background, InboxConformance, testing::Values(make_background_pair));
INSTANTIATE_TEST_SUITE_P(BadPath, InboxConformance, testing::Values(make_bad_path_pair));

using Ends = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

Ends ends() { return memory_links(kLeft, kRight, "boundary 0>1", 2000); }

TEST(InboxTest, CloseWakesTheThreadThatWaits) {
  Inbox inbox;
  auto taken = std::async(std::launch::async, [&] { return inbox.take_until(Inbox::Time::max()); });
  inbox.close();
  EXPECT_FALSE(taken.get());
}

TEST(InboxTest, BusyLinkDoesNotStarveAnother) {
  const Ends busy = ends();
  const Ends quiet = ends();
  Inbox inbox;
  inbox.add(0, *busy.second);
  inbox.add(1, *quiet.second);
  for (int i = 0; i < 5; ++i) busy.first->send(Frame(1));
  quiet.first->send(Frame(1));
  EXPECT_EQ(inbox.take_until(Inbox::Time::max())->link, 0U);
  EXPECT_EQ(inbox.take_until(Inbox::Time::max())->link, 1U);
  EXPECT_EQ(inbox.take_until(Inbox::Time::max())->link, 0U);
}

TEST(InboxTest, NewLinkTakesTheNumberOfARemovedOne) {
  const Ends first = ends();
  const Ends second = ends();
  Inbox inbox;
  inbox.add(0, *first.second);
  first.first->send(Frame(1));
  inbox.remove(0);
  inbox.add(0, *second.second);
  second.first->send(Frame(2));
  first.first->send(Frame(3));
  EXPECT_EQ(frame_of(inbox.take_until(Inbox::Time::max())).size(), 2U);
  EXPECT_FALSE(inbox.take_until(in_seconds(0.01)));
}

TEST(InboxTest, RefusesALinkThatDoesNotReport) {
  ReplaceableLink link("boundary 0>1", "stage 0.0", nullptr);
  Inbox inbox;
  EXPECT_THROW(inbox.add(0, link), std::bad_cast);
}

TEST(InboxTest, RefusesANumberThatIsTaken) {
  const Ends first = ends();
  const Ends second = ends();
  Inbox inbox;
  inbox.add(0, *first.second);
  EXPECT_THROW(inbox.add(0, *second.second), std::logic_error);
}

// Peers send and leave at random, each on a thread of its own, while another thread takes. Every
// frame of each link is taken, and then its end.
class InboxLaw : public testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::size_t kPeers = 4;
  static constexpr int kLinks = 12;  // of each peer, one after another

  struct Peer {
    std::atomic<int> ended = 0;            // links whose end was taken
    std::atomic<std::uint64_t> taken = 0;  // frames of the present link
  };

  void play(std::size_t number) {
    std::mt19937_64 random(GetParam() * kPeers + number);
    Peer& peer = peers_.at(number);
    for (int link = 0; link < kLinks; ++link) {
      Ends both = ends();
      peer.taken = 0;
      inbox_.add(number, *both.second);
      const std::uint64_t frames = random() % 40;
      // More than the window now and then, so that the sender waits for the taker.
      for (std::uint64_t i = 0; i < frames; ++i) {
        both.first->send(numbered_frame(i, random() % 900));
      }
      switch (random() % 3) {
        case 0:
          both.first->abort(LinkError(Kind::aborted, "left"));
          break;
        case 1:
          both.second->abort(LinkError(Kind::aborted, "dropped"));
          break;
        default:
          both.first.reset();
      }
      while (peer.ended == link) std::this_thread::yield();
      EXPECT_EQ(peer.taken, frames);
    }
    if (++done_ == kPeers) inbox_.close();
  }

  std::array<Peer, kPeers> peers_;
  std::atomic<std::size_t> done_ = 0;
  Inbox inbox_;
};

TEST_P(InboxLaw, TakesAllFramesOfEachLinkAndThenItsEnd) {
  std::vector<std::thread> threads;
  threads.reserve(kPeers);
  for (std::size_t number = 0; number < kPeers; ++number) {
    threads.emplace_back([this, number] { play(number); });
  }
  while (const auto arrival = inbox_.take_until(Inbox::Time::max())) {
    Peer& peer = peers_.at(arrival->link);
    if (const auto* frame = std::get_if<Frame>(&arrival->content)) {
      EXPECT_EQ(*frame, numbered_frame(peer.taken, frame->size()));
      ++peer.taken;
    } else {
      ++peer.ended;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Seeds, InboxLaw, testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace strait::net
