#include "launcher/hosts/probe_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "launcher/hosts/forwarding.h"
#include "tests/launcher/hosts/served_hosts.h"

namespace strait::hosts {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kProbeLimit{3000};
// Of tries that cannot succeed.
constexpr milliseconds kShort{300};

ProbeLinks::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

// Two hosts that expect each other.
struct TwoHosts {
  explicit TwoHosts(const std::vector<std::string>& addresses = {"127.0.0.1"}, int links = 1) {
    const OpenPort request{
        addresses, {{0, nodes[0].keys.public_key}, {1, nodes[1].keys.public_key}}, links};
    for (const net::NodeOptions& node : nodes) {
      ends.push_back(std::make_unique<ProbeLinks>(node, std::pair(0, 0), request));
    }
  }
  const std::vector<std::string>& endpoints(std::size_t host) const {
    return ends[host]->opened().addresses.at(0).endpoints;
  }
  PathTarget target(std::size_t host) const {
    return {static_cast<std::int64_t>(host), endpoints(host).at(0)};
  }
  double flow(std::size_t from, const std::vector<std::string>& endpoints) {
    const std::size_t to = 1 - from;
    auto received = std::async(std::launch::async, [&, to] {
      return ends[to]->receive_flow(static_cast<std::int64_t>(from), endpoints, soon());
    });
    ends[from]->send_flow(static_cast<std::int64_t>(to), endpoints, 0.2, soon());
    return received.get();
  }

  std::vector<net::NodeOptions> nodes = {ServedHosts::agent_node(0), ServedHosts::agent_node(1)};
  std::vector<std::unique_ptr<ProbeLinks>> ends;
};

TEST(ProbeLinks, ReachesAnsweringHost) {
  TwoHosts hosts;
  const auto results = hosts.ends[0]->try_paths(std::vector{hosts.target(1)}, kProbeLimit);
  EXPECT_EQ(results.at(0).problem, "");
  EXPECT_GT(results.at(0).seconds, 0);
}

TEST(ProbeLinks, RefusesAnswerOfAnotherHost) {
  TwoHosts hosts;
  const PathTarget own{1, hosts.endpoints(0).at(0)};
  const auto results = hosts.ends[0]->try_paths(std::vector{own}, kShort);
  EXPECT_THAT(results.at(0).problem, HasSubstr(own.endpoint + ": another host answers there"));
}

TEST(ProbeLinks, ReportsClosedPort) {
  TwoHosts hosts;
  const PathTarget closed = hosts.target(1);
  hosts.ends[1].reset();
  const auto results = hosts.ends[0]->try_paths(std::vector{closed}, kShort);
  EXPECT_THAT(results.at(0).problem, HasSubstr(closed.endpoint + ": no answer within 0.3 s"));
}

TEST(ProbeLinks, DoesNotWaitForAddressesThatLeadNowhere) {
  TwoHosts hosts;
  const PathTarget closed{1, listen_at("127.0.0.1", {0, 0}).endpoint.text()};
  const auto results =
      hosts.ends[0]->try_paths(std::vector{closed, hosts.target(1)}, std::chrono::hours(1));
  EXPECT_THAT(results.at(0).problem, HasSubstr("another address of the host has answered"));
  EXPECT_EQ(results.at(1).problem, "");
}

TEST(ProbeLinks, ReportsInvalidAddress) {
  TwoHosts hosts;
  const auto results =
      hosts.ends[0]->try_paths(std::vector{PathTarget{1, "no address"}}, kProbeLimit);
  EXPECT_THAT(results.at(0).problem, HasSubstr("no address"));
}

TEST(ProbeLinks, ReachesHostOverIpv6) {
  TwoHosts hosts({"::1"});
  const auto& opened = hosts.ends[1]->opened();
  if (opened.addresses.empty()) GTEST_SKIP() << opened.problems.at(0);
  const auto results = hosts.ends[0]->try_paths(std::vector{hosts.target(1)}, kProbeLimit);
  EXPECT_EQ(results.at(0).problem, "");
  EXPECT_THAT(hosts.target(1).endpoint, HasSubstr("tcp://[::1]:"));
}

TEST(ProbeLinks, MeasuresRoundTripsAndFlowsInBothDirections) {
  TwoHosts hosts({"127.0.0.1"}, 3);
  EXPECT_GT(hosts.ends[0]->try_paths(std::vector{hosts.target(1)}, kProbeLimit, 20).at(0).seconds,
            0);
  const std::vector<std::string> all = hosts.endpoints(1);
  ASSERT_EQ(all.size(), 3U);
  for (const std::size_t from : {0U, 1U}) {
    for (const std::vector<std::string>& endpoints : {std::vector{all[0]}, all}) {
      EXPECT_GT(hosts.flow(from, endpoints), 1e6) << from << " over " << endpoints.size();
    }
  }
}

TEST(ProbeLinks, ReportsHostLostDuringMeasurement) {
  TwoHosts hosts;
  const PathTarget target = hosts.target(1);
  ASSERT_EQ(hosts.ends[0]->try_paths(std::vector{target}, kProbeLimit).at(0).problem, "");
  hosts.ends[1].reset();
  EXPECT_THROW(hosts.ends[0]->receive_flow(1, {target.endpoint}, soon()), net::LinkError);
  EXPECT_NE(hosts.ends[0]->try_paths(std::vector{target}, kProbeLimit).at(0).problem, "");
}

TEST(ProbeLinks, ReportsForeignAddress) {
  const TwoHosts hosts({"192.0.2.1", "127.0.0.1"});
  const PortOpened& opened = hosts.ends[0]->opened();
  EXPECT_EQ(opened.addresses.size(), 1U);
  ASSERT_EQ(opened.problems.size(), 1U);
  EXPECT_THAT(opened.problems[0], HasSubstr("192.0.2.1"));
}

TEST(ProbeLinks, UsesFewerLinksIfPortsAreTaken) {
  BoundPort taken = listen_at("127.0.0.1", {0, 0});
  const int number = taken.endpoint.port;
  const OpenPort request{{"127.0.0.1"}, {}, 3};
  const ProbeLinks none(ServedHosts::agent_node(0), {number, number}, request);
  ASSERT_EQ(none.opened().problems.size(), 1U);
  EXPECT_THAT(none.opened().problems[0], HasSubstr(std::to_string(number)));
  taken.socket = FileDescriptor();
  const ProbeLinks one(ServedHosts::agent_node(0), {number, number}, request);
  ASSERT_EQ(one.opened().addresses.size(), 1U);
  EXPECT_EQ(one.opened().addresses[0].endpoints.size(), 1U);
  EXPECT_TRUE(one.opened().problems.empty());
}

}  // namespace
}  // namespace strait::hosts
