// Two protocol cores over a wire that does everything a wire can do to bytes but forge them.
#include "framework/net/link_protocol.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/framework/net/link_pair.h"
#include "tests/framework/net/reseal.h"

namespace strait::net {
namespace {

using std::chrono::milliseconds;
using Message = std::vector<std::byte>;
using Role = ProtocolOptions::Role;

const RunId kRun = *RunId::parse("00112233445566778899aabbccddeeff");

ProtocolOptions core_options(Role role, const EndSetup& setup) {
  const bool opener = role == Role::opener;
  ProtocolOptions options;
  options.role = role;
  options.name = opener ? kLeft : kRight;
  options.run = kRun;
  options.generation = setup.generation;
  options.incarnation = opener ? 11 : 22;
  options.peer_address = "127.0.0.1:4711";
  options.link = link_options(setup, opener ? kRight : kLeft, {});
  return options;
}

Message sealed(const LinkProtocol::Outgoing& outgoing) {
  Message message(kHeaderBytes + outgoing.payload.size());
  std::copy(outgoing.payload.begin(), outgoing.payload.end(), message.begin() + kHeaderBytes);
  seal(outgoing.header, message);
  return message;
}

void send_frame(LinkProtocol& core, const Frame& frame) { core.send(frame, hash_frame(frame)); }

// One end, what it still has to send, and what it has taken out so far.
struct Party {
  Party(Role role, const EndSetup& setup, LinkProtocol::Time now)
      : core(core_options(role, setup), now) {}
  LinkProtocol core;
  std::deque<Message> wire;  // on the way to the other
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_taken = 0;
};

class HostileWire {
 public:
  HostileWire(std::uint64_t seed, std::uint64_t frames)
      : random_(seed),
        frames_(frames),
        left_(Role::opener, setup(), now_),
        right_(Role::answerer, setup(), now_) {
    left_.core.path_up(now_);
  }

  void run() {
    for (int step = 0; step < 400 && !finished(); ++step) hostile_step();
    // From here on the wire behaves, and everything must come through by itself.
    for (int step = 0; step < 20'000 && !finished(); ++step) friendly_step();
    EXPECT_TRUE(finished()) << left_.frames_taken << " and " << right_.frames_taken << " of "
                            << frames_ << " frames came through";
    EXPECT_FALSE(left_.core.error()) << left_.core.error()->what();
    EXPECT_FALSE(right_.core.error()) << right_.core.error()->what();
  }

 private:
  EndSetup setup() {
    EndSetup setup;
    setup.fragment_bytes = 1 + random_() % 60;
    setup.window_bytes = 50 + random_() % 1000;
    setup.connect_limit = setup.hold = std::chrono::hours(100);
    return setup;
  }
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  bool finished() const { return left_.frames_taken == frames_ && right_.frames_taken == frames_; }
  Frame frame_of(const Party& from, std::uint64_t number) const {
    return numbered_frame(number * 2 + (&from == &left_ ? 0 : 1), number * 71 % 300);
  }

  void program_step(Party& party, Party& other) {
    if (party.frames_sent < frames_) {
      const Frame frame = frame_of(party, party.frames_sent);
      if (party.core.has_room_for(frame.size())) {
        send_frame(party.core, frame);
        ++party.frames_sent;
      }
    }
    if (chance(60)) {
      if (const auto frame = party.core.take()) {
        ASSERT_LT(party.frames_taken, other.frames_sent) << "a frame that was never sent";
        ASSERT_EQ(*frame, frame_of(other, party.frames_taken)) << "frame " << party.frames_taken;
        ++party.frames_taken;
      }
    }
    while (party.wire.size() < 6) {
      const auto next = party.core.next(now_);
      if (!next) break;
      party.wire.push_back(sealed(*next));
    }
  }

  void deliver(Party& from, Party& to, std::size_t which, bool keep) {
    Message message = from.wire[which];
    if (!keep) from.wire.erase(from.wire.begin() + static_cast<std::ptrdiff_t>(which));
    to.core.receive(now_, message);
  }

  void hostile_delivery(Party& from, Party& to) {
    if (from.wire.empty()) return;
    const std::size_t which = chance(70) ? 0 : random_() % from.wire.size();
    const bool whole = !from.wire[which].empty();
    if (whole && chance(6)) {
      from.wire[which][random_() % from.wire[which].size()] ^=
          static_cast<std::byte>(1 + random_() % 255);
    }
    if (whole && chance(3)) from.wire[which].resize(random_() % from.wire[which].size());
    if (chance(3)) {
      from.wire.erase(from.wire.begin() + static_cast<std::ptrdiff_t>(which));
      return;
    }
    deliver(from, to, which, chance(10));
  }

  void cut() {
    // What is on the way may be lost from any point on, and the connecting side keeps its queue.
    left_.wire.resize(random_() % (left_.wire.size() + 1));
    right_.wire.clear();
    left_.core.path_down(now_);
    if (chance(50)) right_.core.path_down(now_);
    if (chance(50)) pass_time(milliseconds(random_() % 5000));
    left_.core.path_up(now_);
  }

  void pass_time(milliseconds span) {
    now_ += span;
    left_.core.tick(now_);
    right_.core.tick(now_);
  }

  void hostile_step() {
    program_step(left_, right_);
    program_step(right_, left_);
    hostile_delivery(left_, right_);
    hostile_delivery(right_, left_);
    if (chance(2)) cut();
    pass_time(milliseconds(random_() % 300));
  }

  void friendly_step() {
    program_step(left_, right_);
    program_step(right_, left_);
    if (!left_.wire.empty()) deliver(left_, right_, 0, false);
    if (!right_.wire.empty()) deliver(right_, left_, 0, false);
    pass_time(milliseconds(20));
  }

  std::mt19937_64 random_;
  const std::uint64_t frames_;
  LinkProtocol::Time now_ = LinkProtocol::Time(std::chrono::hours(1));
  Party left_;
  Party right_;
};

// Where every memory access is watched, fewer seeds say as much: there is one thread here.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeeds = 150;
#else
constexpr std::uint64_t kSeeds = 3000;
#endif

TEST(LinkProtocolTest, EveryFrameComesOnceAndInOrderOverAHostileWire) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostileWire(seed, 40).run();
    if (HasFailure()) return;
  }
}

// Two cores over flows that keep their own order and differ in speed. A flow may stall, or be cut
// with what is on its way.
class ManyFlows {
 public:
  explicit ManyFlows(std::uint64_t seed, bool hostile)
      : random_(seed),
        hostile_(hostile),
        left_(Role::opener, setup(), now_),
        right_(Role::answerer, setup(), now_) {
    left_.core.want_flows(kFlows, kMaxFlows);
    for (Flow& flow : flows_) flow.speed = 10 + random_() % 90;
    left_.core.path_up(now_);
    flows_[0].up = true;
  }

  void run() {
    for (int step = 0; step < 600 && !finished(); ++step) {
      if (hostile_ && chance(2)) cut(random_() % kFlows);
      if (hostile_ && chance(1)) flows_[random_() % kFlows].stalled = 20 + random_() % 100;
      step_once(hostile_ ? 100 : 5);
    }
    for (int step = 0; step < 20'000 && !finished(); ++step) step_once(hostile_ ? 20 : 5);
    EXPECT_TRUE(finished()) << left_.frames_taken << " and " << right_.frames_taken << " of "
                            << kFrames << " frames came through";
    for (const Party* party : {&left_, &right_}) {
      EXPECT_FALSE(party->core.error()) << party->core.error()->what();
    }
  }
  LinkState left() const { return left_.core.state(); }
  LinkState right() const { return right_.core.state(); }
  std::uint64_t messages_on(std::size_t flow) const { return flows_[flow].carried; }

 private:
  static constexpr std::size_t kFlows = 4;
  static constexpr std::uint64_t kFrames = 60;
  struct Flow {
    bool up = false;
    unsigned speed = 100;  // percent of the steps in which a message passes
    std::uint64_t stalled = 0;
    std::uint64_t carried = 0;
    std::deque<Message> to_left;
    std::deque<Message> to_right;
  };

  EndSetup setup() {
    EndSetup setup;
    setup.fragment_bytes = 1 + random_() % 60;
    setup.window_bytes = 500 + random_() % 5000;
    setup.connect_limit = setup.hold = std::chrono::hours(100);
    return setup;
  }
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  bool finished() const { return left_.frames_taken == kFrames && right_.frames_taken == kFrames; }
  Frame frame_of(const Party& from, std::uint64_t number) const {
    return numbered_frame(number * 2 + (&from == &left_ ? 0 : 1), number * 71 % 300);
  }

  void step_once(unsigned most_ms) {
    program_step(left_, right_);
    program_step(right_, left_);
    for (std::size_t i = 0; i < kFlows; ++i) carry(static_cast<unsigned>(i));
    now_ += milliseconds(1 + random_() % most_ms);
    left_.core.tick(now_);
    right_.core.tick(now_);
    // The opener connects what it wants, and again what was cut.
    const std::size_t down = random_() % kFlows;
    if (!flows_[down].up && chance(30)) {
      flows_[down].up = true;
      left_.core.path_up(now_, static_cast<unsigned>(down));
    }
  }

  void program_step(Party& party, Party& other) {
    const Frame frame = frame_of(party, party.frames_sent);
    if (party.frames_sent < kFrames && party.core.has_room_for(frame.size())) {
      send_frame(party.core, frame);
      ++party.frames_sent;
    }
    if (const auto taken = party.core.take()) {
      ASSERT_LT(party.frames_taken, other.frames_sent) << "a frame that was never sent";
      ASSERT_EQ(*taken, frame_of(other, party.frames_taken)) << "frame " << party.frames_taken;
      ++party.frames_taken;
    }
    for (unsigned i = 0; i < kFlows; ++i) {
      if ((party.core.flows() >> i & 1U) == 0) continue;
      if (const auto next = party.core.next_heartbeat(now_, i)) post(party, i, sealed(*next));
    }
    for (unsigned i = 0; i < kFlows; ++i) {
      if ((party.core.used_flows() >> i & 1U) == 0 || queue(party, i).size() >= 4) continue;
      if (const auto next = party.core.next(now_)) post(party, i, sealed(*next));
    }
  }

  std::deque<Message>& queue(const Party& from, std::size_t flow) {
    return &from == &left_ ? flows_[flow].to_right : flows_[flow].to_left;
  }

  // The answerer may not know yet that a connection is gone.
  void post(Party& from, unsigned flow, Message message) {
    if (flows_[flow].up) return queue(from, flow).push_back(std::move(message));
    if (chance(50)) from.core.path_down(now_, flow);
  }

  void carry(unsigned number) {
    Flow& flow = flows_[number];
    if (flow.stalled > 0) {
      --flow.stalled;
      return;
    }
    for (Party* to : {&left_, &right_}) {
      std::deque<Message>& from = to == &left_ ? flow.to_left : flow.to_right;
      if (from.empty() || !chance(flow.speed)) continue;
      const Message message = std::move(from.front());
      from.pop_front();
      ++flow.carried;
      to->core.receive(now_, message, number);
    }
  }

  void cut(std::size_t number) {
    Flow& flow = flows_[number];
    if (!flow.up) return;
    flow.up = false;
    flow.to_left.clear();
    // What had reached the answerer's host arrives late.
    flow.to_right.resize(random_() % (flow.to_right.size() + 1));
    left_.core.path_down(now_, static_cast<unsigned>(number));
  }

  std::mt19937_64 random_;
  const bool hostile_;
  LinkProtocol::Time now_ = LinkProtocol::Time(std::chrono::hours(1));
  std::array<Flow, kFlows> flows_;
  Party left_;
  Party right_;
};

TEST(LinkProtocolTest, EveryFrameComesOnceAndInOrderOverFlowsThatCutAndStall) {
  for (std::uint64_t seed = 0; seed < kSeeds / 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ManyFlows(seed, true).run();
    if (HasFailure()) return;
  }
}

TEST(LinkProtocolTest, FlowsOfDifferentSpeedsCauseNoResend) {
  std::uint64_t resent = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ManyFlows flows(seed, false);
    flows.run();
    if (HasFailure()) return;
    EXPECT_GT(flows.messages_on(3), 0U);
    resent += flows.left().resent_fragments + flows.right().resent_fragments;
    EXPECT_EQ(flows.left().reconnects + flows.right().reconnects, 0U);
  }
  EXPECT_EQ(resent, 0U);
}

// The plain course of things: messages move until neither end has more to say.
class LinkProtocolPair : public testing::Test {
 protected:
  void start(const EndSetup& left_setup = {}, const EndSetup& right_setup = {}) {
    left.emplace(core_options(Role::opener, left_setup), now);
    right.emplace(core_options(Role::answerer, right_setup), now);
    left->path_up(now);
  }
  void settle() {
    for (bool moved = true; moved;) {
      moved = move(*left, *right);
      moved = move(*right, *left) || moved;
    }
  }
  bool move(LinkProtocol& from, LinkProtocol& to) {
    const auto next = from.next(now);
    if (!next) return false;
    const Message message = sealed(*next);
    to.receive(now, message);
    return true;
  }
  void pass(milliseconds span) {
    now += span;
    left->tick(now);
    right->tick(now);
  }

  LinkProtocol::Time now = LinkProtocol::Time(std::chrono::hours(1));
  std::optional<LinkProtocol> left;
  std::optional<LinkProtocol> right;
};

TEST_F(LinkProtocolPair, OnlyTheMissingBytesAreSentAgainAfterACut) {
  EndSetup setup;
  setup.fragment_bytes = 100;
  start(setup, setup);
  settle();
  const Frame frame = numbered_frame(1, 1000);
  send_frame(*left, frame);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(move(*left, *right));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(left->next(now));  // these are lost with the path
  left->path_down(now);
  left->path_up(now);
  settle();
  EXPECT_EQ(right->take(), frame);
  EXPECT_EQ(left->state().resent_fragments, 3u);
  EXPECT_EQ(left->state().reconnects, 1u);
  EXPECT_EQ(right->state().rejected_fragments, 0u);
}

// What the answerer still owed to a path that broke may go out on the next one.
TEST_F(LinkProtocolPair, ReplyToAFormerPathIsNoAnswerToThisOne) {
  start();
  settle();
  const auto break_path = [&] {
    left->path_down(now);
    left->path_up(now);
  };
  break_path();
  ASSERT_TRUE(move(*left, *right));
  const auto late = right->next(now);
  ASSERT_TRUE(late);
  ASSERT_EQ(late->header.kind, MessageKind::hello_reply);
  const Message reply = sealed(*late);
  break_path();
  left->receive(now, reply);
  EXPECT_FALSE(left->connected());
  EXPECT_EQ(left->state().reconnects, 0u);
  settle();
  EXPECT_TRUE(left->connected());
  EXPECT_EQ(left->state().reconnects, 1u);
}

TEST_F(LinkProtocolPair, NothingIsSentBeforeTheHelloWasAnswered) {
  start();
  send_frame(*left, numbered_frame(1, 10));
  const auto first = left->next(now);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->header.kind, MessageKind::hello);
  EXPECT_FALSE(left->next(now));
  EXPECT_FALSE(right->next(now));
}

// The listener drops a hello that comes before its program has added the link.
TEST_F(LinkProtocolPair, UnansweredHelloIsRepeatedLongBeforeTheNextHeartbeat) {
  start();
  ASSERT_TRUE(left->next(now));  // lost
  settle();
  EXPECT_FALSE(left->connected());
  pass(kStatusEvery / 4);
  settle();
  EXPECT_TRUE(left->connected());
}

TEST_F(LinkProtocolPair, LostLastFragmentIsFoundByTheSignOfLife) {
  start();
  settle();
  send_frame(*left, numbered_frame(1, 10));
  ASSERT_TRUE(left->next(now));  // lost, and nothing follows that would show the gap
  settle();
  EXPECT_FALSE(right->take());
  pass(kStatusEvery);
  settle();
  EXPECT_EQ(right->take(), numbered_frame(1, 10));
}

TEST_F(LinkProtocolPair, PeerThatWasNeverThereIsNamedAfterTheConnectLimit) {
  EndSetup setup;
  setup.connect_limit = std::chrono::seconds(60);
  start(setup, setup);
  for (int second = 0; second < 60; ++second) {
    EXPECT_FALSE(left->error());
    pass(milliseconds(1000));
  }
  ASSERT_TRUE(left->error());
  EXPECT_EQ(left->error()->kind(), LinkError::Kind::lost);
  EXPECT_STREQ(left->error()->what(),
               "boundary 0>1: stage 1.0 (127.0.0.1:4711) could not be reached within 60 s; is it "
               "running?");
}

TEST_F(LinkProtocolPair, SilentPeerIsHeldForAsLongAsSetAndThenLost) {
  EndSetup setup;
  setup.hold = std::chrono::seconds(120);
  start(setup, setup);
  settle();
  EXPECT_TRUE(left->state().connected);
  for (int second = 0; second < 123; ++second) {
    ASSERT_FALSE(left->error());
    pass(milliseconds(1000));
  }
  ASSERT_TRUE(left->error());
  EXPECT_EQ(left->error()->kind(), LinkError::Kind::lost);
  EXPECT_STREQ(
      left->error()->what(),
      "boundary 0>1: nothing received from stage 1.0 (127.0.0.1:4711) for 123.0 s; gave up "
      "after holding the link for 120 s");
}

TEST_F(LinkProtocolPair, TimeInWhichThisProcessStoodStillDoesNotCount) {
  EndSetup setup;
  setup.hold = std::chrono::seconds(10);
  start(setup, setup);
  settle();
  pass(std::chrono::hours(1));
  EXPECT_FALSE(left->error());
  settle();
  send_frame(*left, numbered_frame(1, 10));
  settle();
  EXPECT_EQ(right->take(), numbered_frame(1, 10));
}

TEST_F(LinkProtocolPair, WithoutHoldABrokenPathEndsTheLinkAtOnce) {
  EndSetup setup;
  setup.hold = milliseconds(0);
  start(setup, setup);
  settle();
  left->path_down(now);
  ASSERT_TRUE(left->error());
  EXPECT_EQ(left->error()->kind(), LinkError::Kind::lost);
}

TEST_F(LinkProtocolPair, RestartedPeerIsNotTakenForTheOldOne) {
  start();
  settle();
  send_frame(*left, numbered_frame(1, 10));
  settle();
  ProtocolOptions anew = core_options(Role::opener, {});
  anew.incarnation = 33;
  left.emplace(anew, now);
  left->path_up(now);
  settle();
  ASSERT_TRUE(right->error());
  EXPECT_EQ(right->error()->kind(), LinkError::Kind::lost);
  EXPECT_NE(std::string(right->error()->what()).find("stage 0.0 has restarted"), std::string::npos);
  EXPECT_EQ(right->take(), numbered_frame(1, 10)) << "what had arrived is still delivered";
}

TEST_F(LinkProtocolPair, ForeignRunIsTurnedAwayAndTheLinkWaitsOn) {
  start();
  ProtocolOptions foreign = core_options(Role::opener, {});
  foreign.run = RunId::random();
  LinkProtocol stranger(foreign, now);
  stranger.path_up(now);
  ASSERT_TRUE(move(stranger, *right));
  ASSERT_TRUE(move(*right, stranger));
  ASSERT_TRUE(stranger.error());
  EXPECT_EQ(stranger.error()->kind(), LinkError::Kind::refused);
  EXPECT_NE(std::string(stranger.error()->what()).find(kRun.hex()), std::string::npos);
  EXPECT_FALSE(right->error());
  settle();
  EXPECT_TRUE(right->state().connected);
}

TEST_F(LinkProtocolPair, AbortSurvivesACutPath) {
  start();
  settle();
  left->path_down(now);
  left->abort({LinkError::Kind::aborted, "disk full"});
  while (left->next(now)) {
  }
  left->path_up(now);
  settle();
  ASSERT_TRUE(right->error());
  EXPECT_EQ(right->error()->kind(), LinkError::Kind::aborted);
  EXPECT_NE(std::string(right->error()->what()).find("disk full"), std::string::npos);
}

// However late a confirmation comes, and whatever confirms the same again.
TEST_F(LinkProtocolPair, ConfirmationsSayWhenTheLastBytesArrivedByTheirOwnClock) {
  EndSetup setup;
  setup.fragment_bytes = 100;
  start(setup, setup);
  settle();
  send_frame(*left, numbered_frame(1, 200));
  pass(milliseconds(30));
  ASSERT_TRUE(move(*left, *right));
  const auto late = right->next(now);
  ASSERT_TRUE(late);
  const Message first = sealed(*late);
  pass(milliseconds(70));
  ASSERT_TRUE(move(*left, *right));
  const auto newer = right->next(now);
  ASSERT_TRUE(newer);
  const Message second = sealed(*newer);
  pass(milliseconds(400));
  left->receive(now, first);
  EXPECT_EQ(left->window().received_offset(), 100u);
  EXPECT_EQ(left->window().arrived(), milliseconds(30));
  left->receive(now, second);
  EXPECT_EQ(left->window().received_offset(), 200u);
  EXPECT_EQ(left->window().arrived(), milliseconds(100));
  left->receive(now, first);  // overtaken
  EXPECT_EQ(left->window().arrived(), milliseconds(100));
  pass(kStatusEvery);
  settle();
  EXPECT_EQ(left->window().arrived(), milliseconds(100));
}

TEST_F(LinkProtocolPair, StateReportsReceivedBytesOfFrame) {
  EndSetup setup;
  setup.fragment_bytes = 100;
  start(setup, setup);
  settle();
  send_frame(*left, numbered_frame(1, 1000));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(move(*left, *right));
  EXPECT_EQ(right->state().awaited_bytes, 1000u);
  EXPECT_EQ(right->state().awaited_received, 300u);
  EXPECT_EQ(left->state().window_bytes, 1000u);
}

// What a flow held is sent again over another, without a new path.
TEST_F(LinkProtocolPair, FlowThatBreaksIsNotTheEndOfThePath) {
  EndSetup setup;
  setup.fragment_bytes = 100;
  setup.hold = milliseconds(0);
  start(setup, setup);
  left->want_flows(2, kMaxFlows);
  settle();
  left->path_up(now, 1);
  right->receive(now, sealed(*left->next_heartbeat(now, 1)), 1);
  EXPECT_EQ(left->used_flows(), 0b11);
  EXPECT_EQ(right->used_flows(), 0b11);
  const Frame frame = numbered_frame(1, 1000);
  send_frame(*left, frame);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(left->next(now));  // on flow 1, which breaks
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(move(*left, *right));
  EXPECT_EQ(right->state().rejected_fragments, 0U) << "what is early was taken for a gap";
  left->path_down(now, 1);
  settle();
  EXPECT_EQ(right->take(), frame);
  EXPECT_FALSE(left->error());
  EXPECT_EQ(right->used_flows(), 0b01);
  // What had come early was not sent again.
  EXPECT_LE(left->state().resent_fragments, 7U);
}

TEST_F(LinkProtocolPair, FlowThatStallsIsPassedByAfterASecond) {
  EndSetup setup;
  setup.fragment_bytes = 100;
  start(setup, setup);
  left->want_flows(2, kMaxFlows);
  settle();
  left->path_up(now, 1);
  right->receive(now, sealed(*left->next_heartbeat(now, 1)), 1);
  const Frame frame = numbered_frame(1, 1000);
  send_frame(*left, frame);
  ASSERT_TRUE(left->next(now));  // on flow 1, which stalls
  settle();
  EXPECT_FALSE(right->take());
  pass(milliseconds(500));
  settle();
  EXPECT_EQ(left->state().resent_fragments, 0U);
  pass(milliseconds(600));
  settle();
  EXPECT_EQ(right->take(), frame);
}

TEST_F(LinkProtocolPair, OtherProtocolVersionIsNamedWithBothNumbersAtBothEnds) {
  start();
  Message hello = sealed(*left->next(now));
  hello[8] = std::byte{kProtocolVersion + 1};
  reseal(hello);
  right->receive(now, hello);
  ASSERT_TRUE(right->error());
  EXPECT_EQ(right->error()->kind(), LinkError::Kind::refused);
  EXPECT_NE(std::string(right->error()->what())
                .find("version 5 of the link protocol, stage 1.0 "
                      "version 4"),
            std::string::npos)
      << right->error()->what();
  // The later version gets an answer in ours, and says so in its turn.
  const auto answer = right->next(now);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.kind, MessageKind::refuse);
}

// With valid keys, too, no peer fills this end's memory: it takes nothing here.
TEST_F(LinkProtocolPair, PeerThatDoesNotKeepToItsWindowIsCutOff) {
  EndSetup boundless;
  boundless.window_bytes = std::uint64_t{1} << 30;
  EndSetup usual;
  usual.window_bytes = 300'000;
  start(boundless, usual);
  settle();
  int sent = 0;
  for (; sent < 50 && !right->error(); ++sent) {
    send_frame(*left, numbered_frame(sent, 100'000));
    settle();
  }
  ASSERT_TRUE(right->error());
  EXPECT_NE(std::string(right->error()->what()).find("sends more than its window"),
            std::string::npos);
  EXPECT_GT(sent, 12);  // four windows, and the frame that may be there in any case
  EXPECT_LT(sent, 16);
}

TEST_F(LinkProtocolPair, FrameWhoseBytesKeepChangingEndsTheLink) {
  start();
  settle();
  Frame frame = numbered_frame(1, 500);
  left->send(frame, hash_frame(numbered_frame(2, 500)));  // as if memory had changed since
  for (int i = 0; i < 10; ++i) {
    settle();
    pass(kStatusEvery);
  }
  ASSERT_TRUE(right->error());
  EXPECT_NE(std::string(right->error()->what()).find("memory of one of the two hosts"),
            std::string::npos);
  EXPECT_FALSE(right->take());
}

}  // namespace
}  // namespace strait::net
