#include "launcher/worker/control_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "launcher/base/errors.h"
#include "tests/memory_links.h"

namespace strait::worker {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string text_of(const net::Frame& frame) {
  std::string text;
  for (const std::byte byte : frame) text.push_back(static_cast<char>(byte));
  return text;
}

// Delivers one frame; what is sent over it is printed on stderr.
class OneFrameLink : public net::Link {
 public:
  explicit OneFrameLink(net::Frame frame) : next_(std::move(frame)) {}

  bool send_until(net::Frame& frame, Clock::time_point /*deadline*/) override {
    fmt::print(stderr, "sent {}\n", text_of(frame));
    return true;
  }
  net::Frame receive() override { throw net::LinkError(net::LinkError::Kind::lost, "all is read"); }
  std::optional<net::Frame> receive_until(Clock::time_point /*deadline*/) override {
    if (next_) return std::exchange(next_, std::nullopt);
    return receive();
  }
  bool flush(Clock::time_point /*deadline*/) override {
    fmt::print(stderr, "flushed\n");
    return true;
  }
  void abort(const net::LinkError& /*cause*/) override {}
  net::LinkState state() const override { return {}; }

 private:
  std::optional<net::Frame> next_;
};

// In a process of its own, which the client ends.
void run_client(net::Frame first) {
  ControlClient client(std::make_unique<OneFrameLink>(std::move(first)));
  client.wait_to_rejoin();
}

TEST(ControlClient, ReportsMessageThatDoesNotParseAsItsOwnFailure) {
  EXPECT_EXIT(run_client(net::Frame{std::byte{'{'}, std::byte{'}'}}),
              testing::ExitedWithCode(number(base::ExitCode::internal)),
              "sent .*protocol error: .*ended.*\nflushed");
}

TEST(ControlClient, LostCoordinatorIsLostPeer) {
  EXPECT_EXIT(run_client(run::format(run::CoordinatorMessage(run::AfterStep{}))),
              testing::ExitedWithCode(number(base::ExitCode::peer_lost)), "");
}

TEST(ControlClient, GoesOnWhenItCannotConnectToJoiningReplica) {
  constexpr net::ProcessName kStage{0, 0};
  auto [stage, coordinator] = memory_links(kStage, net::ProcessName::coordinator(), "control");
  ControlClient client(std::move(stage));
  client.on_admit([](const run::Admit&) { return std::map<std::string, std::string>{}; },
                  [](const run::Peers& peers) {
                    throw net::LinkError(net::LinkError::Kind::unusable,
                                         peers.endpoints.at("replica 0-1") + " is no address");
                  });
  coordinator->send(format(run::CoordinatorMessage(run::Peers{})));  // the start
  coordinator->send(format(run::CoordinatorMessage(run::Peers{{{"replica 0-1", "x"}}})));
  const auto frame = coordinator->receive_until(Clock::now() + 20s);
  ASSERT_TRUE(frame.has_value());
  const run::StageMessage message = run::parse_stage_message(*frame);
  const auto* event = std::get_if<run::Event>(&message);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->name, "not_connected");
  EXPECT_EQ(event->text, "cannot connect to the replica that joins: x is no address");
  // It still receives.
  coordinator->send(format(run::CoordinatorMessage(run::AfterStep{.save = 7})));
  const auto deadline = Clock::now() + 20s;
  while (client.requests().save != 7U && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(client.requests().save, 7U);
}

}  // namespace
}  // namespace strait::worker
