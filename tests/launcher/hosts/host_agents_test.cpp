#include "launcher/hosts/host_agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "framework/net/link_error.h"
#include "launcher/base/errors.h"
#include "tests/launcher/user_error.h"
#include "tests/memory_links.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Agents of two hosts; the tests send their messages.
class HostAgentsTest : public testing::Test {
 protected:
  using Link = std::unique_ptr<net::Link>;

  // The launcher's end; the agent's end goes to remote_[host].
  Link link_to(std::uint32_t host) {
    auto [left, right] =
        memory_links(net::ProcessName::coordinator(), net::ProcessName::host_agent(host), "agent");
    remote_.at(host) = std::move(right);
    return std::move(left);
  }
  void come_up() {
    std::vector<HostAgents::Agent> agents;
    agents.push_back({"h0", link_to(0), "key 0"});
    agents.push_back({"h1", link_to(1), "key 1"});
    come_up(std::move(agents));
  }
  void come_up(std::vector<HostAgents::Agent> agents) {
    agents_ = std::make_unique<HostAgents>(
        std::move(agents), [](auto, const auto&) {}, [this] { poll_(); });
    agents_->tolerate_outages();
  }
  void say(std::size_t host, const AgentMessage& message) {
    remote_.at(host)->send(with_number(0, format(message)));
  }
  template <class Reply>
  void reply(std::size_t host, std::uint64_t number, const Reply& reply) {
    remote_.at(host)->send(with_number(number, ReplyFrame<Reply>::format(reply)));
  }
  // The number of the next request of a host.
  std::uint64_t take_request(std::size_t host) {
    return take_number(remote_.at(host)->receive()).number;
  }
  std::unique_ptr<base::Process> start(net::ProcessName process, std::size_t host) {
    base::Launch launch;
    launch.process = process;
    launch.host = host;
    auto answer = std::async(std::launch::async,
                             [this, host] { reply(host, take_request(host), ProcessStarted{7}); });
    auto started = agents_->start(launch);
    answer.get();
    return started;
  }
  void lose(std::size_t host, base::Process& process) {
    remote_.at(host).reset();
    const auto status = process.wait_until(Clock::now() + 20s);
    ASSERT_TRUE(status);
    EXPECT_THAT(status->lost, HasSubstr(fmt::format("its host h{} is gone", host)));
  }

  const std::map<std::size_t, JoinRelay> to_host_1_{{1, {}}};
  std::vector<Link> remote_{2};
  std::function<void()> poll_ = [] {};
  std::unique_ptr<HostAgents> agents_;
};

TEST_F(HostAgentsTest, StartsOnOtherHostsWhenOneIsLost) {
  come_up();
  const auto one = start({0, 1}, 1);
  lose(1, *one);
  EXPECT_TRUE(agents_->lost(1));
  EXPECT_FALSE(agents_->responds(1));
  const auto other = start({0, 0}, 0);
  EXPECT_EQ(other->pid(), 7);
  base::Launch launch;
  launch.process = {0, 1};
  launch.host = 1;
  EXPECT_THAT(base::user_error(base::ExitCode::peer_lost, [&] { agents_->start(launch); }),
              HasSubstr("host h1: the connection to its agent is lost"));
  remote_[0].reset();
}

TEST_F(HostAgentsTest, RestartedAgentRecoversHostButNotItsProcesses) {
  come_up();
  const auto before = start({0, 1}, 1);
  // The former agent is still alive, but disconnected.
  const Link former = std::exchange(remote_[1], nullptr);
  agents_->replace(1, link_to(1), "new key");
  const auto status = before->exit_status();
  ASSERT_TRUE(status);
  EXPECT_THAT(status->lost, HasSubstr("another agent was started there"));
  EXPECT_THROW(former->receive(), net::LinkError);

  HostFacts facts;
  facts.host_name = "again";
  say(1, AgentHello{facts});
  const auto late = [](const auto&) { return "too late"; };
  EXPECT_EQ(agents_->wait_for_facts({1}, Clock::now() + 20s, late, [] {}).front().host_name,
            "again");
  EXPECT_FALSE(agents_->lost(1));
  EXPECT_EQ(agents_->key(1), "new key");
  const auto after = start({1, 1}, 1);
  EXPECT_EQ(after->exit_status(), std::nullopt);
  remote_[0].reset();
  lose(1, *after);
}

// As the late report of a host that a process was moved away from.
TEST_F(HostAgentsTest, HostReportsNoProcessOfAnotherHost) {
  come_up();
  const auto one = start({0, 1}, 1);
  say(0, ProcessReport{.process = {0, 1}, .code = 0});
  const auto later = start({0, 0}, 0);  // read after it
  EXPECT_EQ(one->exit_status(), std::nullopt);
  say(1, ProcessReport{.process = {0, 1}, .code = 3});
  const auto status = one->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code, 3);
  remote_[0].reset();
}

TEST_F(HostAgentsTest, HostIsLostUntilItsAgentIsStarted) {
  std::vector<HostAgents::Agent> agents;
  agents.push_back({"h0", link_to(0), ""});
  agents.push_back({"h1", nullptr, ""});
  come_up(std::move(agents));
  EXPECT_TRUE(agents_->lost(1));
  agents_->check();  // it was not meant to be there
  agents_->replace(1, link_to(1), "new key");
  EXPECT_FALSE(agents_->lost(1));
  const auto one = start({0, 1}, 1);
  EXPECT_EQ(one->host(), "h1");
  remote_[0].reset();
  lose(1, *one);
}

TEST_F(HostAgentsTest, GoodbyeIsPassedOnWhileProcessesGoOn) {
  come_up();
  const auto one = start({0, 1}, 1);
  EXPECT_FALSE(one->host_leaves());
  say(1, Goodbye{});
  say(1, ProcessReport{.process = {0, 1}, .code = 0});
  ASSERT_TRUE(one->wait_until(Clock::now() + 20s));
  EXPECT_TRUE(one->host_leaves());
  EXPECT_EQ(one->exit_status()->code, 0);
  EXPECT_FALSE(agents_->lost(1));
  EXPECT_THAT(base::user_error(base::ExitCode::peer_lost, [&] { agents_->check(); }),
              HasSubstr("host h1: it was interrupted there"));
  remote_[0].reset();
  remote_[1].reset();
}

TEST_F(HostAgentsTest, GoodbyeAtOnceLosesHost) {
  come_up();
  const auto one = start({0, 1}, 1);
  say(1, Goodbye{true});
  const auto status = one->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status);
  EXPECT_THAT(status->lost, HasSubstr("its host h1 is gone: it was interrupted there"));
  remote_[0].reset();
}

TEST_F(HostAgentsTest, ProcessKnowsThatItsAgentHasEnded) {
  come_up();
  const auto before = start({0, 1}, 1);
  const Link former = std::exchange(remote_[1], nullptr);
  agents_->replace(1, link_to(1), "new key");
  before->parent_ended();
  EXPECT_FALSE(agents_->lost(1)) << "it is of a former agent";
  const auto after = start({1, 1}, 1);
  after->parent_ended();
  ASSERT_TRUE(after->exit_status());
  EXPECT_THAT(after->exit_status()->lost, HasSubstr("its agent was killed or has crashed"));
  remote_[0].reset();
}

TEST_F(HostAgentsTest, RefusedProcessIsAnErrorOfItsHost) {
  come_up();
  base::Launch launch;
  launch.process = {0, 1};
  launch.host = 1;
  auto started = std::async(std::launch::async, [&] { return agents_->start(launch); });
  remote_[1]->send(with_number(take_request(1), ReplyFrame<ProcessStarted>::format(Failure{
                                                    base::ExitCode::mismatch, "no program"})));
  EXPECT_EQ(base::user_error(base::ExitCode::mismatch, [&] { started.get(); }),
            "host h1: no program");
  remote_[0].reset();
  remote_[1].reset();
}

TEST_F(HostAgentsTest, RepliesBelongToTheirRequestsInAnyOrder) {
  come_up();
  auto one = agents_->ask(0, JoinRelay{});
  auto other = agents_->ask(0, JoinRelay{});
  const std::uint64_t first = take_request(0);
  const std::uint64_t second = take_request(0);
  reply(1, first, ListensAt{"of another host"});
  reply(0, second, ListensAt{"second"});
  EXPECT_EQ(std::get<ListensAt>(other.get()).endpoint, "second");
  reply(0, second, ListensAt{"again"});
  reply(0, 77, ListensAt{"never asked"});
  reply(0, first, ListensAt{"first"});
  EXPECT_EQ(std::get<ListensAt>(one.get()).endpoint, "first");
  remote_[0].reset();
  remote_[1].reset();
}

TEST_F(HostAgentsTest, RequestsFailWhenTheirHostIsLost) {
  come_up();
  auto before = agents_->ask(1, JoinRelay{});
  agents_->mark_lost(1, "its agent has ended");  // its link may wait for a long time yet
  auto after = agents_->ask(1, JoinRelay{});
  for (auto* reply : {&before, &after}) {
    const ReplyTo<JoinRelay> failed = reply->get();
    EXPECT_EQ(std::get<Failure>(failed).code, base::ExitCode::peer_lost);
    EXPECT_EQ(std::get<Failure>(failed).text, "its agent has ended");
  }
  EXPECT_THAT(
      base::user_error(base::ExitCode::peer_lost, [&] { agents_->ask_all(to_host_1_, 20s); }),
      HasSubstr("host h1: its agent has ended"));
  remote_[0].reset();
}

TEST_F(HostAgentsTest, RequestsFailWhenAnotherAgentIsStarted) {
  come_up();
  auto before = agents_->ask(1, JoinRelay{});
  const std::uint64_t number = take_request(1);
  const Link former = std::exchange(remote_[1], nullptr);
  agents_->replace(1, link_to(1), "new key");
  EXPECT_TRUE(std::holds_alternative<Failure>(before.get()));
  auto after = agents_->ask(1, JoinRelay{});
  reply(1, number, ListensAt{"of the former request"});
  reply(1, take_request(1), ListensAt{"here"});
  EXPECT_EQ(std::get<ListensAt>(after.get()).endpoint, "here");
  remote_[0].reset();
  remote_[1].reset();
}

TEST_F(HostAgentsTest, WaitForRepliesEndsWhenItIsGivenUp) {
  come_up();
  EXPECT_THAT(base::user_error(base::ExitCode::stalled, [&] { agents_->ask_all(to_host_1_, 0s); }),
              HasSubstr("host h1 has not replied within 0 s"));
  poll_ = [] { throw base::UserError(base::ExitCode::interrupted, "stopped"); };
  EXPECT_EQ(
      base::user_error(base::ExitCode::interrupted, [&] { agents_->ask_all(to_host_1_, 20s); }),
      "stopped");
  remote_[0].reset();
  remote_[1].reset();
}

TEST_F(HostAgentsTest, HostWithMalformedMessageIsLost) {
  come_up();
  auto reply = agents_->ask(1, JoinRelay{});
  net::Frame frame = with_number(0, format(Goodbye{}));
  frame.pop_back();
  remote_[1]->send(std::move(frame));
  EXPECT_TRUE(std::holds_alternative<Failure>(reply.get()));
  EXPECT_TRUE(agents_->lost(1));
  remote_[0].reset();
}

TEST_F(HostAgentsTest, ReplyOfAnotherTypeFailsTheRequest) {
  come_up();
  auto asked = agents_->ask(1, JoinRelay{});
  reply(1, take_request(1), ProcessStarted{7});
  const ReplyTo<JoinRelay> failed = asked.get();
  EXPECT_THAT(std::get<Failure>(failed).text, HasSubstr("its agent sent no reply to the request"));
  EXPECT_FALSE(agents_->lost(1));
  remote_[0].reset();
  remote_[1].reset();
}

// Whoever sees the end reads the last lines.
TEST_F(HostAgentsTest, LogOfAProcessIsThereBeforeItsEnd) {
  std::vector<HostAgents::Agent> agents;
  agents.push_back({"h0", link_to(0), ""});
  agents.push_back({"h1", link_to(1), ""});
  std::promise<std::string> kept;
  std::promise<void> seen;
  agents_ = std::make_unique<HostAgents>(
      std::move(agents),
      [&](auto, const std::string& text) {
        kept.set_value(text);
        seen.get_future().get();
      },
      [] {});
  agents_->tolerate_outages();
  const auto one = start({0, 1}, 1);
  say(1, ProcessReport{{0, 1}, "last line\n", 3, {}});
  EXPECT_EQ(kept.get_future().get(), "last line\n");
  EXPECT_EQ(one->exit_status(), std::nullopt);
  seen.set_value();
  const auto status = one->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code, 3);
  remote_[0].reset();
  remote_[1].reset();
}

}  // namespace
}  // namespace strait::hosts
