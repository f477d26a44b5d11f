// Two processes with a foreground and a background link between them, over real sockets.
#include <gtest/gtest.h>

#include <thread>

#include "framework/net/background_pace.h"
#include "framework/net/node.h"
#include "framework/net/simulated_path.h"
#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using Clock = std::chrono::steady_clock;

EndSetup with_priority(Priority priority) {
  EndSetup setup;
  setup.priority = priority;
  setup.window_bytes = std::uint64_t{128} << 20;
  return setup;
}

class PriorityTest : public testing::Test {
 protected:
  std::unique_ptr<Link> expect(Listener& listener, const EndSetup& setup) {
    return listener.expect(link_options(setup, kLeft, left_keys.public_key));
  }
  std::unique_ptr<Link> connect(const std::string& endpoint, const EndSetup& setup) {
    return left_node.connect(endpoint, link_options(setup, kRight, right_keys.public_key));
  }

  const RunId run = RunId::random();
  const CurveKeyPair left_keys = CurveKeyPair::generate();
  const CurveKeyPair right_keys = CurveKeyPair::generate();
  const EndSetup front = with_priority(Priority::foreground);
  const EndSetup back = with_priority(Priority::background);
  Node left_node{node_options(kLeft, run, left_keys)};
  Node right_node{node_options(kRight, run, right_keys)};
  const std::unique_ptr<Listener> front_port = right_node.listen({});
  const std::unique_ptr<Listener> back_port = right_node.listen({});
};

TEST_F(PriorityTest, BackgroundTricklesWhileTheForegroundIsStuckAndGoesOnOnceItsPathIsDown) {
  SimulatedPath relay;
  relay.forward_to(front_port->endpoint());
  const auto front_right = expect(*front_port, front);
  const auto back_right = expect(*back_port, back);
  const auto front_left = connect(relay.endpoint(), front);
  const auto back_left = connect(back_port->endpoint(), back);
  front_left->send(numbered_frame(1, 10));
  back_left->send(numbered_frame(2, 10));
  EXPECT_EQ(front_right->receive(), numbered_frame(1, 10));
  EXPECT_EQ(back_right->receive(), numbered_frame(2, 10));

  relay.hold_back();
  relay.freeze();
  front_left->send(Frame(std::size_t{64} << 20));  // more than any buffers take
  // The net thread has seen it when some of it has gone.
  while (front_left->state().sent_bytes < 100'000) std::this_thread::yield();
  const Frame large = numbered_frame(3, std::size_t{2} << 20);
  const std::uint64_t before = back_left->state().sent_bytes;
  const auto began = Clock::now();
  back_left->send(large);
  const auto sent = [&] { return back_left->state().sent_bytes - before; };
  EXPECT_FALSE(back_left->receive_until(in_seconds(1)));
  // A busy machine may need more than a second for two fragments.
  while (sent() <= BackgroundPace::kLeastFragment && front_left->state().connected) {
    EXPECT_FALSE(back_left->receive_until(in_seconds(0.05)));
  }
  const std::uint64_t trickled = sent();
  const auto fragments = (Clock::now() - began) / BackgroundPace::kTrickleEvery + 1;
  EXPECT_GT(trickled, BackgroundPace::kLeastFragment);
  EXPECT_LE(trickled,
            static_cast<std::uint64_t>(fragments) * (BackgroundPace::kLeastFragment + 1000));

  EXPECT_EQ(back_right->receive(), large);
  EXPECT_FALSE(front_left->state().connected);
}

TEST_F(PriorityTest, BothLinksComeThroughAFloodOfEachOther) {
  const auto front_right = expect(*front_port, front);
  const auto back_right = expect(*back_port, back);
  const auto front_left = connect(front_port->endpoint(), front);
  const auto back_left = connect(back_port->endpoint(), back);
  constexpr int kFrames = 50;
  const auto send_all = [](Link& link) {
    for (int i = 0; i < kFrames; ++i) link.send(numbered_frame(i, 1 + i * 4001 % 100'000));
  };
  const auto receive_all = [](Link& link) {
    for (int i = 0; i < kFrames; ++i) {
      ASSERT_EQ(link.receive(), numbered_frame(i, 1 + i * 4001 % 100'000)) << "frame " << i;
    }
  };
  std::vector<std::thread> threads;
  for (Link* link : {front_left.get(), back_left.get(), front_right.get(), back_right.get()}) {
    threads.emplace_back(send_all, std::ref(*link));
    threads.emplace_back(receive_all, std::ref(*link));
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace strait::net
