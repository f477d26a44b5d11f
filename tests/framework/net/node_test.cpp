// What ZeroMQ links promise beyond Link: who may come in, and what becomes of a broken path.
#include "framework/net/node.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <system_error>
#include <thread>

#include "framework/file_descriptor.h"
#include "framework/mutex.h"
#include "framework/net/endpoint.h"
#include "framework/net/router_carrier.h"
#include "framework/net/simulated_path.h"
#include "framework/net/socket_settings.h"
#include "tests/child_process.h"
#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Kind = LinkError::Kind;

// What must be tried and fail within it takes a hundredth of it, unless the machine is busy.
constexpr milliseconds kBrief{2000};

std::uint16_t port_of(const std::string& endpoint) { return Endpoint::parse(endpoint)->port; }

// Waits for the end of a link whose peer sends nothing.
LinkError end_of(Link& link) {
  try {
    link.receive();
  } catch (const LinkError& error) {
    return error;
  }
  ADD_FAILURE() << "a frame came where only an error can";
  return {Kind::lost, "nothing was thrown"};
}

// libzmq would abort.
TEST(Node, WithoutThreadsIsRefused) {
  const ChildProcess child([](int ready) {
    constexpr uid_t kOther = 54321;  // root has no such limit
    constexpr rlimit kNone{1, 1};
    if (::setrlimit(RLIMIT_NPROC, &kNone) != 0) throw std::runtime_error("no limit");
    if (::getuid() == 0 && ::setuid(kOther) != 0) throw std::runtime_error("no other user");
    try {
      const Node node(node_options(kLeft, RunId::random(), CurveKeyPair::generate()));
    } catch (const std::system_error& error) {
      ChildProcess::report_ready(ready, error.code() == std::errc::resource_unavailable_try_again);
    }
  });
  EXPECT_EQ(child.reported(), 1);
}

class NodeTest : public testing::Test {
 protected:
  NodeOptions named(const ProcessName& name, const CurveKeyPair& keys) {
    return node_options(name, run, keys);
  }

  // The right node listens and records what happens.
  void start_right() {
    NodeOptions options = named(kRight, right_keys);
    options.on_event = [this](const std::string& words) {
      const MutexLock lock(mutex);
      events.push_back(words);
    };
    right_node = std::make_unique<Node>(options);
    listener = right_node->listen({});
  }
  std::unique_ptr<Link> expect_left(const EndSetup& setup = {}) {
    return listener->expect(link_options(setup, kLeft, left_keys.public_key));
  }
  std::vector<std::string> events_so_far() {
    const MutexLock lock(mutex);
    return events;
  }

  const RunId run = RunId::random();
  const CurveKeyPair left_keys = CurveKeyPair::generate();
  const CurveKeyPair right_keys = CurveKeyPair::generate();
  Mutex mutex;
  std::vector<std::string> events STRAIT_GUARDED_BY(mutex);
  std::unique_ptr<Node> right_node;
  std::unique_ptr<Listener> listener;
};

TEST_F(NodeTest, UnknownKeyDeliversNothingAndDoesNotDisturbTheRealPeer) {
  start_right();
  const auto right = expect_left();
  EndSetup brief;
  brief.connect_limit = kBrief;
  {
    Node stranger(named(kLeft, CurveKeyPair::generate()));  // right name, wrong key
    const auto link =
        stranger.connect(listener->endpoint(), link_options(brief, kRight, right_keys.public_key));
    link->send(numbered_frame(1, 10));
    const LinkError error = end_of(*link);
    EXPECT_EQ(error.kind(), Kind::unauthenticated);
    EXPECT_THAT(error.what(), HasSubstr("does not know our key"));
  }
  EXPECT_THAT(events_so_far(), testing::Contains(HasSubstr("refused: a process at 127.0.0.1")));
  EXPECT_FALSE(right->state().connected);

  Node node(named(kLeft, left_keys));
  const auto left =
      node.connect(listener->endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(2, 10));
  EXPECT_EQ(right->receive(), numbered_frame(2, 10));
}

TEST_F(NodeTest, PeerThatNeverConnectsIsLostWhateverStrangersTry) {
  start_right();
  EndSetup brief;
  brief.connect_limit = kBrief;
  Node stranger(named(kLeft, CurveKeyPair::generate()));
  const auto link =
      stranger.connect(listener->endpoint(), link_options({}, kRight, right_keys.public_key));
  while (events_so_far().empty()) std::this_thread::yield();  // it was refused at least once
  const auto right = expect_left(brief);
  const LinkError error = end_of(*right);
  EXPECT_EQ(error.kind(), Kind::lost);
  EXPECT_THAT(error.what(), HasSubstr("has not connected to this process"));
  EXPECT_THAT(error.what(), HasSubstr("failed authentication"));
}

// Connections of strangers, without a word.
class SilentConnections {
 public:
  SilentConnections(std::uint16_t port, int count) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const void* const where = &address;
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
      EXPECT_EQ(::connect(sockets_.back(), static_cast<const sockaddr*>(where), sizeof address), 0);
      // Accepted. A full queue of the listener would drop the next one, and cost a second.
      char greeting = 0;
      EXPECT_EQ(::recv(sockets_.back(), &greeting, 1, 0), 1);
    }
  }
  ~SilentConnections() {
    for (const int socket : sockets_) ::close(socket);
  }
  // Of those that the listener has not closed.
  std::ptrdiff_t open() const {
    return std::ranges::count_if(sockets_, [](int socket) {
      std::array<char, 256> greeting{};
      ssize_t got = 1;
      while (got > 0) got = ::recv(socket, greeting.data(), greeting.size(), MSG_DONTWAIT);
      return got < 0 && errno == EAGAIN;
    });
  }

 private:
  std::vector<int> sockets_;
};

TEST_F(NodeTest, StrangersHoldFewConnectionsAndThePeerKeepsItsOwn) {
  start_right();
  const auto right = expect_left();
  Node node(named(kLeft, left_keys));
  const auto left =
      node.connect(listener->endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
  constexpr int kStrangers = 150;
  const SilentConnections strangers(port_of(listener->endpoint()), kStrangers);
  // Those in the middle of their greeting get libzmq's own, which is no end. Long before libzmq
  // gives up on any of them.
  constexpr auto kMost = static_cast<std::ptrdiff_t>(UnprovenConnections::kMost);
  const auto begun = std::chrono::steady_clock::now();
  while (strangers.open() > kMost) std::this_thread::yield();
  const auto took = std::chrono::steady_clock::now() - begun;
  // libzmq itself gives up on silent ones after 4 s.
  EXPECT_LT(std::chrono::duration<double>(took).count(), 2);
  EXPECT_GT(strangers.open(), 0);
  left->send(numbered_frame(2, 10));
  EXPECT_EQ(right->receive(), numbered_frame(2, 10));
  EXPECT_EQ(left->state().reconnects, 0u);
}

TEST_F(NodeTest, ManyUnknownKeysAreReportedInFewLines) {
  start_right();
  const auto right = expect_left();
  EndSetup brief;
  brief.connect_limit = milliseconds(20'000);
  constexpr std::size_t kStrangers = 9;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<Link>> links;
  for (std::size_t i = 0; i < kStrangers; ++i) {
    nodes.push_back(std::make_unique<Node>(named(kLeft, CurveKeyPair::generate())));
    links.push_back(nodes.back()->connect(listener->endpoint(),
                                          link_options(brief, kRight, right_keys.public_key)));
  }
  const auto eighth = testing::Contains(HasSubstr("(8 so far)"));
  while (!testing::Matches(eighth)(events_so_far())) std::this_thread::yield();
  EXPECT_LE(
      std::ranges::count_if(
          events_so_far(), [](const std::string& event) { return event.starts_with("refused: "); }),
      5);
}

TEST_F(NodeTest, PlaintextPeerIsRefusedByAnEncryptedListener) {
  start_right();
  const auto right = expect_left();
  NodeOptions options = named(kLeft, {});
  options.plaintext = true;
  Node node(options);
  EndSetup brief;
  brief.connect_limit = kBrief;
  const auto link = node.connect(listener->endpoint(), link_options(brief, kRight, {}));
  link->send(numbered_frame(1, 10));
  EXPECT_EQ(end_of(*link).kind(), Kind::unauthenticated);
  EXPECT_FALSE(right->state().connected);
  EXPECT_EQ(right->state().received_bytes, 0u);
}

TEST_F(NodeTest, ListenerThatHoldsAnotherKeyIsNotTalkedTo) {
  start_right();
  const auto right = expect_left();
  Node node(named(kLeft, left_keys));
  EndSetup brief;
  brief.connect_limit = kBrief;
  const auto link = node.connect(listener->endpoint(),
                                 link_options(brief, kRight, CurveKeyPair::generate().public_key));
  const LinkError error = end_of(*link);
  EXPECT_EQ(error.kind(), Kind::unauthenticated) << error.what();
  EXPECT_EQ(right->state().received_bytes, 0u);
}

TEST_F(NodeTest, KnownProcessUnderTheNameOfAnotherIsDropped) {
  start_right();
  const auto right = expect_left();
  const CurveKeyPair other_keys = CurveKeyPair::generate();
  const auto other = listener->expect(link_options({}, {2, 0}, other_keys.public_key));
  EndSetup brief;
  brief.connect_limit = kBrief;
  Node impostor(named(kLeft, other_keys));
  const auto link =
      impostor.connect(listener->endpoint(), link_options(brief, kRight, right_keys.public_key));
  EXPECT_EQ(end_of(*link).kind(), Kind::lost);
  EXPECT_EQ(right->state().received_bytes, 0u);
  EXPECT_EQ(other->state().received_bytes, 0u);
  EXPECT_THAT(events_so_far(),
              testing::Contains(HasSubstr("dropped a message of 2.0 under the name 0.0")));
}

TEST_F(NodeTest, PeerThatCallsBeforeItIsExpectedComesInLater) {
  start_right();
  Node node(named(kLeft, left_keys));
  const auto left =
      node.connect(listener->endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  while (events_so_far().empty()) std::this_thread::yield();  // it was refused at least once
  const auto right = expect_left();
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
}

TEST_F(NodeTest, ListenerMayComeUpAfterThePeerBeganToCall) {
  SimulatedPath relay;
  Node node(named(kLeft, left_keys));
  const auto left = node.connect(relay.endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  start_right();
  const auto right = expect_left();
  relay.forward_to(listener->endpoint());
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
}

TEST_F(NodeTest, CutConnectionsLoseNothingAndRepeatNothing) {
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  relay.cut_each_after(700'000);
  const auto right = expect_left();
  Node node(named(kLeft, left_keys));
  const auto left = node.connect(relay.endpoint(), link_options({}, kRight, right_keys.public_key));
  constexpr int kFrames = 60;
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) left->send(numbered_frame(i, i * 997 % 60'000));
  });
  std::thread answerer([&] {
    for (int i = 0; i < kFrames; ++i) right->send(numbered_frame(i + 1000, i * 331 % 60'000));
  });
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_EQ(right->receive(), numbered_frame(i, i * 997 % 60'000)) << "frame " << i;
    ASSERT_EQ(left->receive(), numbered_frame(i + 1000, i * 331 % 60'000)) << "frame " << i;
  }
  sender.join();
  answerer.join();
  EXPECT_GT(relay.connections(), 2u) << "the relay has cut nothing, so nothing was tested";
  EXPECT_GE(left->state().reconnects, 2u);
}

// The process allows no further descriptor while this lives: those below the limit are taken.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    constexpr int kLimit = 16;  // poll() refuses lists that are longer than it
    for (int taken = 0; taken < kLimit;) {
      taken = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      taken_.push_back(taken);
    }
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = kLimit;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() {
    ::setrlimit(RLIMIT_NOFILE, &before_);
    for (const int descriptor : taken_) ::close(descriptor);
  }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  std::vector<int> taken_;
  rlimit before_{};
};

TEST_F(NodeTest, LinkOutlivesATimeInWhichNoFileCanBeOpened) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan looks at an object's type through a pipe, which cannot be opened here";
#endif
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  const auto right = expect_left();
  NodeOptions options = named(kLeft, left_keys);
  std::promise<void> failed;
  options.on_event = [&failed, seen = false](const std::string& text) mutable {
    if (std::exchange(seen, true)) return;
    EXPECT_THAT(text, HasSubstr("Too many open files"));
    failed.set_value();
  };
  Node node(std::move(options));
  const auto left = node.connect(relay.endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
  {
    const NoMoreFiles none;
    relay.cut();
    EXPECT_EQ(failed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  left->send(numbered_frame(2, 10));
  EXPECT_EQ(right->receive(), numbered_frame(2, 10));
}

TEST_F(NodeTest, PathThatSwallowsEverythingIsNoticedAndTheLinkIsLost) {
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  EndSetup impatient;
  impatient.hold = milliseconds(0);
  const auto right = expect_left(impatient);
  Node node(named(kLeft, left_keys));
  const auto left =
      node.connect(relay.endpoint(), link_options(impatient, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
  relay.freeze();
  const LinkError error = end_of(*right);
  EXPECT_EQ(error.kind(), Kind::lost);
  EXPECT_THAT(error.what(),
              HasSubstr("boundary 0>1: nothing received from stage 0.0 (127.0.0.1) for"));
  EXPECT_EQ(end_of(*left).kind(), Kind::lost);
}

// Something in between that confirms every byte and passes none on, which the kernel cannot see.
TEST_F(NodeTest, ConnectionThatSwallowsEverythingIsReplaced) {
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  const auto right = expect_left();
  Node node(named(kLeft, left_keys));
  const auto left = node.connect(relay.endpoint(), link_options({}, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
  relay.freeze_open();
  left->send(numbered_frame(2, 10));
  EXPECT_EQ(right->receive(), numbered_frame(2, 10));
  EXPECT_GE(left->state().reconnects, 1u);
}

// A fragment of the fast path would take longer than a silent path has: 130 kB take 7.2 s.
TEST_F(NodeTest, PathThatGetsSlowCarriesOn) {
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  EndSetup wide;
  wide.window_bytes = std::uint64_t{64} << 20;
  wide.fragment_bytes = std::uint64_t{1} << 20;
  const auto right = expect_left(wide);
  Node node(named(kLeft, left_keys));
  const auto left =
      node.connect(relay.endpoint(), link_options(wide, kRight, right_keys.public_key));
  // The path is known to be fast, and fragments are large.
  for (int i = 0; i < 3; ++i) {
    right->send(numbered_frame(i, 4'000'000));
    EXPECT_EQ(left->receive(), numbered_frame(i, 4'000'000));
  }
  relay.set({.bits_per_second = 8 * 18'000});
  right->send(numbered_frame(3, 130'000));
  const auto frame = left->receive_until(in_seconds(60));
  ASSERT_TRUE(frame);
  EXPECT_EQ(*frame, numbered_frame(3, 130'000));
  // Its bytes came all the time, so the connection was never taken for a dead one.
  EXPECT_EQ(relay.connections(), 1U);
  EXPECT_EQ(left->state().reconnects, 0U);
}

// What libzmq 4.3.4 aborts on when its own heartbeats are on: a socket is closed that still has
// something to say, its peer still speaks, and the connection breaks.
TEST_F(NodeTest, EndThatIsClosedWithWordsUnsentOutlivesTheBreakOfItsConnection) {
  start_right();
  SimulatedPath relay;
  relay.forward_to(listener->endpoint());
  EndSetup wide;
  wide.window_bytes = std::uint64_t{64} << 20;
  wide.hold = milliseconds(0);
  const auto right = expect_left(wide);
  auto node = std::make_unique<Node>(named(kLeft, left_keys));
  auto left = node->connect(relay.endpoint(), link_options(wide, kRight, right_keys.public_key));
  left->send(numbered_frame(1, 10));
  EXPECT_EQ(right->receive(), numbered_frame(1, 10));
  relay.hold_back();
  left->send(numbered_frame(2, std::size_t{32} << 20));
  EXPECT_FALSE(left->flush(in_seconds(0.5)));  // by then every queue on the way is full
  left.reset();
  right->send(numbered_frame(1, 100'000));
  EXPECT_FALSE(right->flush(in_seconds(0.2)));  // in flight to a peer that takes nothing any more
  relay.reset();
  node.reset();  // waits for libzmq's last second with the socket
  EXPECT_EQ(end_of(*right).kind(), Kind::lost);
}

TEST_F(NodeTest, OneListenerServesManyPeersApart) {
  const CurveKeyPair keys = CurveKeyPair::generate();
  Node coordinator(named(ProcessName::coordinator(), keys));
  const auto control = coordinator.listen({});
  constexpr std::uint32_t kStages = 5;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<Link>> near;
  std::vector<std::unique_ptr<Link>> far;
  for (std::uint32_t stage = 0; stage < kStages; ++stage) {
    const CurveKeyPair stage_keys = CurveKeyPair::generate();
    near.push_back(control->expect(link_options({}, {stage, 0}, stage_keys.public_key)));
    nodes.push_back(std::make_unique<Node>(named({stage, 0}, stage_keys)));
    far.push_back(nodes.back()->connect(
        control->endpoint(), link_options({}, ProcessName::coordinator(), keys.public_key)));
  }
  for (std::uint32_t stage = 0; stage < kStages; ++stage) {
    far[stage]->send(numbered_frame(stage, 200'000));
    near[stage]->send(numbered_frame(stage + 100, 200'000));
  }
  for (std::uint32_t stage = 0; stage < kStages; ++stage) {
    EXPECT_EQ(near[stage]->receive(), numbered_frame(stage, 200'000));
    EXPECT_EQ(far[stage]->receive(), numbered_frame(stage + 100, 200'000));
  }
  far[2].reset();
  EXPECT_EQ(end_of(*near[2]).kind(), Kind::lost);
  far[3]->send(numbered_frame(7, 10));
  EXPECT_EQ(near[3]->receive(), numbered_frame(7, 10)) << "one lost peer disturbs no other";
}

// As a host's agent has: a bulk transfer on one link holds up no request on the other.
TEST_F(NodeTest, LinksOfOnePeerShareAListenerByTheirNames) {
  start_right();
  const auto named_link = [](LinkOptions options, const std::string& name) {
    options.name = name;
    return options;
  };
  const LinkOptions of_left = link_options({}, kLeft, left_keys.public_key);
  const LinkOptions of_right = link_options({}, kRight, right_keys.public_key);
  Node left_node(named(kLeft, left_keys));
  // The second is not expected yet when it calls: its first messages must not reach the first.
  auto requests = listener->expect(named_link(of_left, "requests"));
  const auto far_files =
      left_node.connect(listener->endpoint(), named_link(of_right, "the bytes of files"));
  const auto far_requests =
      left_node.connect(listener->endpoint(), named_link(of_right, "requests"));
  far_files->send(numbered_frame(1, 300'000));
  far_requests->send(numbered_frame(2, 10));
  EXPECT_EQ(requests->receive(), numbered_frame(2, 10));
  const auto files = listener->expect(named_link(of_left, "the bytes of files"));
  EXPECT_EQ(files->receive(), numbered_frame(1, 300'000));
  requests->send(numbered_frame(3, 10));
  files->send(numbered_frame(4, 300'000));
  EXPECT_EQ(far_requests->receive(), numbered_frame(3, 10));
  EXPECT_EQ(far_files->receive(), numbered_frame(4, 300'000));
  requests.reset();
  EXPECT_EQ(end_of(*far_requests).kind(), Kind::lost);
  far_files->send(numbered_frame(5, 10));
  EXPECT_EQ(files->receive(), numbered_frame(5, 10)) << "the other link and its key stay";
}

TEST_F(NodeTest, OneLinkOfANameIsExpectedOncePerListener) {
  start_right();
  const auto right = expect_left();
  const LinkError error = error_of([&] { expect_left(); });
  EXPECT_EQ(error.kind(), Kind::unusable);
  EXPECT_THAT(error.what(), HasSubstr("stage 0.0 is already expected"));
}

TEST_F(NodeTest, DestroyingAListenerEndsItsLinks) {
  start_right();
  const auto right = expect_left();
  listener.reset();
  EXPECT_EQ(end_of(*right).kind(), Kind::lost);
}

TEST_F(NodeTest, PortThatIsTakenIsNamedWithItsHolder) {
  start_right();
  const std::uint16_t taken = port_of(listener->endpoint());
  const LinkError error = error_of([&] { right_node->listen({"127.0.0.1", taken, taken}); });
  EXPECT_EQ(error.kind(), Kind::unusable);
  EXPECT_THAT(error.what(), HasSubstr("port " + std::to_string(taken) + " on 127.0.0.1 is taken"));
  EXPECT_THAT(error.what(), HasSubstr("held by process " + std::to_string(getpid())));
}

TEST_F(NodeTest, FirstFreePortOfARangeIsTaken) {
  start_right();
  const std::uint16_t taken = port_of(listener->endpoint());
  // Other programs may hold some of the next ports; a hundred of them do not.
  const auto second = right_node->listen(
      {"127.0.0.1", taken, static_cast<std::uint16_t>(std::min(taken + 100, 65535))});
  EXPECT_GT(port_of(second->endpoint()), taken);
  EXPECT_LE(port_of(second->endpoint()), taken + 100);
}

TEST_F(NodeTest, AddressesThatCannotBeUsedAreRefusedWithTheReason) {
  start_right();
  const auto words_of = [&](const BindAddress& address) {
    const LinkError error = error_of([&] { right_node->listen(address); });
    EXPECT_EQ(error.kind(), Kind::unusable);
    return std::string(error.what());
  };
  EXPECT_THAT(words_of({"*", 0, 0}), HasSubstr("name the one address"));
  EXPECT_THAT(words_of({"0.0.0.0", 0, 0}), HasSubstr("name the one address"));
  EXPECT_THAT(words_of({"203.0.113.7", 0, 0}), HasSubstr("is it an address of this machine?"));
  EXPECT_THAT(words_of({"127.0.0.1", 500, 400}), HasSubstr("500-400"));
  for (const std::string endpoint : {"127.0.0.1:80", "tcp://host", "tcp://host:0", "tcp://:80"}) {
    const LinkError error = error_of(
        [&] { right_node->connect(endpoint, link_options({}, kLeft, left_keys.public_key)); });
    EXPECT_EQ(error.kind(), Kind::unusable);
    EXPECT_THAT(error.what(), HasSubstr(endpoint));
  }
}

TEST_F(NodeTest, PlaintextIsForPrivateAddressesOnly) {
  NodeOptions options = named(kLeft, {});
  options.plaintext = true;
  Node node(options);
  EXPECT_THAT(error_of([&] {
                node.listen({"203.0.113.7", 0, 0});
              }).what(),
              HasSubstr("plaintext links are for private addresses only"));
  const LinkError error =
      error_of([&] { node.connect("tcp://example.org:80", link_options({}, kRight, {})); });
  EXPECT_EQ(error.kind(), Kind::unusable);
  EXPECT_THAT(error.what(), HasSubstr("example.org"));
}

TEST_F(NodeTest, EncryptedNodeWithoutKeysIsRefused) {
  EXPECT_EQ(error_of([&] { Node(named(kLeft, {})); }).kind(), Kind::unusable);
  start_right();
  const LinkError error = error_of([&] { listener->expect(link_options({}, kLeft, "not a key")); });
  EXPECT_THAT(error.what(), HasSubstr("public key of stage 0.0"));
}

TEST(EndpointTest, ClassifiesPrivateAddresses) {
  for (const char* host : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.7.7",
                           "169.254.1.1", "::1", "fe80::1", "fd00::1", "localhost"}) {
    EXPECT_TRUE(is_private_host(host)) << host;
  }
  for (const char* host : {"8.8.8.8", "172.32.0.1", "172.15.0.1", "192.169.0.1", "11.0.0.1",
                           "2001:db8::1", "example.org", ""}) {
    EXPECT_FALSE(is_private_host(host)) << host;
  }
}

TEST(EndpointTest, TextIsParsedAndPrintedAlike) {
  for (const std::string text : {"tcp://10.0.0.1:4711", "tcp://[fe80::1]:80", "tcp://host-b:1"}) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->text(), text);
  }
  EXPECT_FALSE(Endpoint::parse("tcp://10.0.0.1:65536"));
  EXPECT_FALSE(Endpoint::parse("ipc:///tmp/x"));
}

std::string congestion_control(int descriptor) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

TEST(SocketSettingsTest, ConnectionSwitchesToBbrAndBackWhereTheKernelAllowsIt) {
  zmq::context_t context;
  zmq::socket_t left(context, zmq::socket_type::pair);
  zmq::socket_t right(context, zmq::socket_type::pair);
  left.bind("tcp://127.0.0.1:0");
  right.connect(left.get(zmq::sockopt::last_endpoint));
  right.send(zmq::str_buffer("hello"), zmq::send_flags::none);
  zmq::message_t message;
  ASSERT_TRUE(left.recv(message, zmq::recv_flags::none));
  const int descriptor = zmq_msg_get(message.handle(), ZMQ_SRCFD);
  // The system's own may be bbr.
  ASSERT_EQ(::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);

  ConnectionBytes connection;
  EXPECT_FALSE(connection.can_use_bbr());
  connection.follow(message, false);
  EXPECT_TRUE(connection.can_use_bbr());
  const FileDescriptor own(::socket(AF_INET, SOCK_STREAM, 0));
  const bool allowed = ::setsockopt(own.number(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) == 0;
  connection.use_bbr(true);
  EXPECT_EQ(connection.can_use_bbr(), allowed);
  EXPECT_EQ(congestion_control(descriptor), allowed ? "bbr" : "reno");
  connection.use_bbr(false);
  EXPECT_EQ(congestion_control(descriptor), "reno");
}

TEST(SocketSettingsTest, LibzmqWithKnownHolesIsRefused) {
  EXPECT_EQ(error_of([] { require_safe_libzmq(4, 3, 2); }).kind(), Kind::unusable);
  EXPECT_THAT(error_of([] { require_safe_libzmq(4, 2, 9); }).what(), HasSubstr("4.2.9"));
  require_safe_libzmq(4, 3, 3);
  require_safe_libzmq(4, 4, 0);
  require_safe_libzmq(5, 0, 0);
}

}  // namespace
}  // namespace strait::net
