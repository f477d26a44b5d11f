#include "launcher/hosts/relay.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "framework/file_descriptor.h"
#include "framework/net/node.h"
#include "launcher/hosts/path_service.h"

namespace strait::hosts {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant in_time() { return std::chrono::steady_clock::now() + seconds(30); }

std::byte byte_at(std::uint64_t place) {
  return static_cast<std::byte>((place * 2654435761U) >> 24U);
}

bool ready(const FileDescriptor& socket, short events, milliseconds limit = seconds(30)) {
  pollfd waited{socket.number(), events, 0};
  return ::poll(&waited, 1, static_cast<int>(limit.count())) == 1;
}

FileDescriptor connected(const net::Endpoint& place) {
  FileDescriptor socket = start_connect(place);
  EXPECT_TRUE(ready(socket, POLLOUT));
  EXPECT_EQ(connect_error(socket.number()), "");
  return socket;
}

void send_all(const FileDescriptor& socket, std::span<const std::byte> bytes) {
  while (!bytes.empty() && ready(socket, POLLOUT)) {
    const ssize_t sent = ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  EXPECT_TRUE(bytes.empty());
}

// Fewer bytes than asked for if the other end closes the connection.
std::size_t receive(const FileDescriptor& socket, std::span<std::byte> bytes) {
  std::size_t received = 0;
  while (received < bytes.size() && ready(socket, POLLIN)) {
    const ssize_t got =
        ::recv(socket.number(), bytes.data() + received, bytes.size() - received, 0);
    if (got <= 0) break;
    received += static_cast<std::size_t>(got);
  }
  return received;
}

// The relay's host and the two hosts that cannot reach each other.
struct Detour {
  Detour() { relay->admit(token); }

  void restart_relay() {
    const int port = place().port;
    relay.reset();
    relay = std::make_unique<Relay>(std::pair(port, port));
    relay->admit(token);
    place();
  }

  net::Endpoint place() const { return relay->endpoint("127.0.0.1"); }

  const std::string token = Preamble::random_token();
  std::unique_ptr<Relay> relay = std::make_unique<Relay>(std::pair(0, 0));
  RelayClient binding{[](const std::string&) {}};
  RelayClient dialling{[](const std::string&) {}};
};

// A real link, encrypted from end to end, between two nodes that only meet at the relay.
class RelayedLink : public testing::Test {
 protected:
  static net::NodeOptions node_options(net::ProcessName name, const net::CurveKeyPair& keys,
                                       net::RunId run) {
    net::NodeOptions options;
    options.name = name;
    options.keys = keys;
    options.run = run;
    return options;
  }
  static net::LinkOptions link_options(net::ProcessName peer, const net::CurveKeyPair& keys) {
    net::LinkOptions options;
    options.name = "boundary 0.0>1.0";
    options.peer = peer;
    options.peer_public_key = keys.public_key;
    options.window_bytes = std::uint64_t{4} << 20;
    return options;
  }

  RelayedLink() {
    listener_ = lower_.listen({});
    below_ = listener_->expect(link_options({0, 0}, upper_keys_));
    detour_.binding.bind(relay(), detour_.token, *net::Endpoint::parse(listener_->endpoint()));
    const net::Endpoint near = detour_.dialling.dial(relay(), detour_.token);
    above_ = upper_.connect(near.text(), link_options({1, 0}, lower_keys_));
  }

  net::Endpoint relay() const { return detour_.place(); }

  static net::Frame frame_of(std::uint64_t number) {
    net::Frame frame(300'000);
    for (std::size_t i = 0; i < frame.size(); ++i) frame.data()[i] = byte_at(number + i);
    return frame;
  }
  static void expect_frame(net::Link& link, std::uint64_t number) {
    const auto got = link.receive_until(in_time());
    ASSERT_TRUE(got) << "frame " << number;
    const net::Frame expected = frame_of(number);
    ASSERT_EQ(got->size(), expected.size());
    ASSERT_TRUE(std::equal(got->data(), got->data() + got->size(), expected.data()));
  }

  Detour detour_;
  const net::RunId run_ = net::RunId::random();
  const net::CurveKeyPair upper_keys_ = net::CurveKeyPair::generate();
  const net::CurveKeyPair lower_keys_ = net::CurveKeyPair::generate();
  net::Node upper_{node_options({0, 0}, upper_keys_, run_)};
  net::Node lower_{node_options({1, 0}, lower_keys_, run_)};
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Link> below_;
  std::unique_ptr<net::Link> above_;
};

TEST_F(RelayedLink, ForwardsFramesBothWays) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    above_->send(frame_of(i));
    below_->send(frame_of(100 + i));
    expect_frame(*below_, i);
    expect_frame(*above_, 100 + i);
  }
}

TEST_F(RelayedLink, RestartOfRelayLosesNoFrame) {
  std::thread sender([this] {
    for (std::uint64_t i = 0; i < 60; ++i) above_->send(frame_of(i));
  });
  for (std::uint64_t i = 0; i < 60; ++i) {
    if (i % 20 == 10) detour_.restart_relay();
    expect_frame(*below_, i);
    if (HasFatalFailure()) break;
  }
  if (HasFatalFailure())
    above_->abort(net::LinkError(net::LinkError::Kind::lost, "the test failed"));
  sender.join();
  EXPECT_GE(below_->state().reconnects, 1U);
}

TEST_F(RelayedLink, RebindReconnectsLink) {
  std::thread sender([this] {
    for (std::uint64_t i = 0; i < 40; ++i) above_->send(frame_of(i));
  });
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i == 15) {
      detour_.binding.bind(relay(), detour_.token, *net::Endpoint::parse(listener_->endpoint()));
    }
    expect_frame(*below_, i);
    if (HasFatalFailure()) break;
  }
  if (HasFatalFailure())
    above_->abort(net::LinkError(net::LinkError::Kind::lost, "the test failed"));
  sender.join();
}

// Plain connections through the relay, as a stage would open them.
struct PlainDetour : Detour {
  PlainDetour() {
    const net::Endpoint near = dialling.dial(place(), token);
    binding.bind(place(), token, stage.endpoint);
    caller = connected(near);
    const std::array<std::byte, 1> word = {byte_at(0)};
    send_all(caller, word);
    EXPECT_TRUE(ready(stage.socket, POLLIN));
    called = accept_connection(stage.socket.number());
  }

  BoundPort stage = listen_at("127.0.0.1", {0, 0});
  FileDescriptor caller;
  FileDescriptor called;
};

TEST(Relay, SlowReaderSlowsSenderInBoundedMemory) {
  PlainDetour detour;
  std::vector<std::byte> piece(1 << 16);
  std::uint64_t sent = 1;
  // Until every socket and buffer on the way is full: then it takes nothing more.
  constexpr std::uint64_t kMostHeld = std::uint64_t{64} << 20;
  while (sent < kMostHeld && ready(detour.caller, POLLOUT, milliseconds(700))) {
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = byte_at(sent + i);
    const ssize_t taken = ::send(detour.caller.number(), piece.data(), piece.size(), MSG_NOSIGNAL);
    ASSERT_GT(taken, 0);
    sent += static_cast<std::uint64_t>(taken);
  }
  EXPECT_LT(sent, kMostHeld) << "bytes that nobody reads are held somewhere";
  for (std::uint64_t read = 0; read < sent;) {
    piece.resize(std::min<std::uint64_t>(1 << 16, sent - read));
    ASSERT_EQ(receive(detour.called, piece), piece.size());
    for (std::size_t i = 0; i < piece.size(); ++i) ASSERT_EQ(piece[i], byte_at(read + i));
    read += piece.size();
  }
  const std::array<std::byte, 1> word = {std::byte{1}};
  send_all(detour.caller, word);
  std::array<std::byte, 1> last{};
  EXPECT_EQ(receive(detour.called, last), 1U);
  EXPECT_EQ(last, word);
}

// So connections of strangers that send nothing cost next to nothing.
TEST(Forwarding, TakesMemoryForBytesOnly) {
  const auto peak_bytes = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) << 10U;
  };
  const auto ends = [] {
    std::array<int, 2> numbers{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, numbers.data()), 0);
    return std::pair(FileDescriptor(numbers[0]), FileDescriptor(numbers[1]));
  };
  const std::uint64_t before = peak_bytes();
  std::vector<FileDescriptor> outer;
  ForwardingSet forwardings;
  for (int i = 0; i < 100; ++i) {
    auto [near, caller] = ends();
    auto [far, called] = ends();
    forwardings.add("token", Forwarding(std::move(near), std::move(far)));
    outer.push_back(std::move(caller));
    outer.push_back(std::move(called));
  }
  EXPECT_LT(peak_bytes() - before, std::uint64_t{8} << 20U);
  std::vector<pollfd> polls;
  forwardings.append_to(polls);
  forwardings.move(polls);
  EXPECT_EQ(forwardings.size(), 100U);
}

TEST(Relay, ForwardsLastBytesBeforeClosing) {
  PlainDetour detour;
  std::vector<std::byte> words(100'000);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = byte_at(i + 1);
  send_all(detour.caller, words);
  detour.caller = FileDescriptor();
  std::vector<std::byte> heard(words.size() + 1);
  EXPECT_EQ(receive(detour.called, heard), heard.size());
  EXPECT_TRUE(std::equal(words.begin(), words.end(), heard.begin() + 1));
  std::array<std::byte, 1> more{};
  EXPECT_EQ(receive(detour.called, more), 0U);
}

TEST(Relay, ReturnsSameEndpointForSameToken) {
  Detour detour;
  const net::Endpoint place = detour.place();
  EXPECT_EQ(detour.place().text(), place.text());
  EXPECT_NE(detour.relay->endpoint("127.0.0.2").text(), place.text());
  const net::Endpoint port = detour.dialling.dial(place, detour.token);
  EXPECT_EQ(detour.dialling.dial(place, detour.token).text(), port.text());
  EXPECT_NE(detour.dialling.dial(place, Preamble::random_token()).text(), port.text());
}

TEST(Relay, RefusesConnectionsWithoutToken) {
  const Detour detour;
  const net::Endpoint place = detour.place();
  std::array<std::byte, 1> answer{};
  const FileDescriptor stranger = connected(place);
  const std::string words(kPreambleBytes, 'x');
  send_all(stranger, std::as_bytes(std::span(words)));
  EXPECT_EQ(receive(stranger, answer), 0U);
  const FileDescriptor guesser = connected(place);
  const Preamble guessed{Preamble::random_token(), Preamble::End::binds};
  send_all(guesser, to_bytes(guessed));
  EXPECT_EQ(receive(guesser, answer), 0U);
}

TEST(Preamble, RoundTripsAndRefusesOtherBytes) {
  const Preamble preamble{Preamble::random_token(), Preamble::End::dials};
  const auto read = parse_preamble(to_bytes(preamble));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->token, preamble.token);
  EXPECT_EQ(read->end, preamble.end);
  PreambleBytes broken = to_bytes(preamble);
  broken[0] = std::byte{0};
  EXPECT_FALSE(parse_preamble(broken));
  broken = to_bytes(preamble);
  broken[15] = std::byte{'?'};
  EXPECT_FALSE(parse_preamble(broken));
  EXPECT_FALSE(parse_preamble(std::span(broken).first(20)));
}

}  // namespace
}  // namespace strait::hosts
