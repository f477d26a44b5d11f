#include "launcher/hosts/host_agents.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <utility>

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
    agents.push_back({"h0", link_to(0)});
    agents.push_back({"h1", link_to(1)});
    agents_ = std::make_unique<HostAgents>(std::move(agents), [](auto, const auto&) {});
    agents_->tolerate_outages();
  }
  void say(std::size_t host, const AgentMessage& message) {
    remote_.at(host)->send(format(message));
  }
  // The agent reports it as started before it is requested.
  std::unique_ptr<base::Process> start(net::ProcessName process, std::size_t host) {
    base::Launch launch;
    launch.process = process;
    launch.host = host;
    auto answer = std::async(std::launch::async, [this, process, host] {
      remote_.at(host)->receive_until(Clock::now() + 20s);
      say(host, ProcessStarted{process, 7});
    });
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

  std::vector<Link> remote_{2};
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
  agents_->replace(1, link_to(1));
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
  const auto after = start({1, 1}, 1);
  EXPECT_EQ(after->exit_status(), std::nullopt);
  remote_[0].reset();
  lose(1, *after);
}

// As the late report of a host that a process was moved away from.
TEST_F(HostAgentsTest, HostReportsNoProcessOfAnotherHost) {
  come_up();
  const auto one = start({0, 1}, 1);
  say(0, ProcessEnded{{0, 1}, 0, {}});
  say(0, ProcessRefused{{0, 1}, base::ExitCode::internal, "not here"});
  const auto behind = start({0, 0}, 0);  // both were read before it
  EXPECT_EQ(one->exit_status(), std::nullopt);
  say(1, ProcessEnded{{0, 1}, 3, {}});
  const auto status = one->wait_until(Clock::now() + 20s);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code, 3);
  remote_[0].reset();
}

TEST_F(HostAgentsTest, HostIsLostUntilItsAgentIsStarted) {
  std::vector<HostAgents::Agent> agents;
  agents.push_back({"h0", link_to(0)});
  agents.push_back({"h1", nullptr});
  agents_ = std::make_unique<HostAgents>(std::move(agents), [](auto, const auto&) {});
  agents_->tolerate_outages();
  EXPECT_TRUE(agents_->lost(1));
  agents_->check();  // it was not meant to be there
  agents_->replace(1, link_to(1));
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
  say(1, ProcessEnded{{0, 1}, 0, {}});
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
  agents_->replace(1, link_to(1));
  before->parent_ended();
  EXPECT_FALSE(agents_->lost(1)) << "it is of a former agent";
  const auto after = start({1, 1}, 1);
  after->parent_ended();
  ASSERT_TRUE(after->exit_status());
  EXPECT_THAT(after->exit_status()->lost, HasSubstr("its agent was killed or has crashed"));
  remote_[0].reset();
}

}  // namespace
}  // namespace strait::hosts
