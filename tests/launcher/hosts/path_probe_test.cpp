#include "launcher/hosts/path_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "launcher/hosts/forwarding.h"
#include "tests/launcher/hosts/served_hosts.h"
#include "tests/launcher/user_error.h"
#include "tests/refusal_of.h"

namespace strait::hosts {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(PathProbe, ProbesAllPairs) {
  ServedHosts hosts(3);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.2"}, {"192.0.2.7"}});
  ASSERT_EQ(ports.problems().size(), 1U);
  EXPECT_THAT(ports.problems()[0], HasSubstr("host h2: cannot listen on 192.0.2.7"));
  const auto tries = probe_paths(*hosts.agents, ports, {{0, 1}, {1, 0}, {0, 2}});
  ASSERT_EQ(tries.size(), 2U) << "host 2 has no address to try";
  for (const PathProbe& one : tries) EXPECT_EQ(one.problem, "");
  ASSERT_NE(best_probe(tries, 0, 1), nullptr);
  EXPECT_EQ(best_probe(tries, 0, 1)->address, "127.0.0.2");
  EXPECT_EQ(best_probe(tries, 0, 2), nullptr);
}

TEST(PathProbe, MeasuresEachAddress) {
  ServedHosts hosts(2);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.2", "127.0.0.3"}});
  const auto tries = probe_paths(*hosts.agents, ports, {{0, 1}, {1, 0}});
  ASSERT_EQ(tries.size(), 3U);
  EXPECT_GT(tries[0].bytes_per_second, 1e6);
  EXPECT_GT(tries[1].bytes_per_second, 1e6);
  EXPECT_EQ(tries[2].bytes_per_second, 0) << "there is nothing to choose from";
}

TEST(PathProbe, ComparesInterfacesNotAddresses) {
  ServedHosts hosts(2);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.1", "::1"}});
  if (!ports.problems().empty()) GTEST_SKIP() << ports.problems()[0];
  EXPECT_EQ(ports.address(1, "::1").interface, ports.address(1, "127.0.0.1").interface);
  const auto tries = probe_paths(*hosts.agents, ports, {{0, 1}});
  ASSERT_EQ(tries.size(), 2U);
  for (const PathProbe& one : tries) {
    EXPECT_EQ(one.problem, "");
    EXPECT_EQ(one.bytes_per_second, 0) << one.address;
  }
}

TEST(PathProbe, MeasuresEveryInterfacePair) {
  ServedHosts hosts(4);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.2", "127.0.0.3"},
                                        {"127.0.0.4", "127.0.0.5"},
                                        {"127.0.0.6", "127.0.0.7"},
                                        {"127.0.0.8"}});
  const auto tries = probe_paths(*hosts.agents, ports, {{0, 1}, {1, 0}, {1, 2}, {2, 3}, {3, 2}});
  ASSERT_EQ(tries.size(), 9U);
  for (const PathProbe& one : tries) {
    EXPECT_EQ(one.bytes_per_second > 1e6, one.to != 3) << one.from << " to " << one.address;
  }
}

TEST(PathProbe, ClosesPortsAfterProbes) {
  ServedHosts hosts(2);
  std::string endpoint;
  {
    const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.1"}});
    endpoint = ports.addresses(1).at(0).endpoints.at(0);
  }
  // Replied to only after the port is closed.
  const auto replies = hosts.agents->ask_all(std::map<std::size_t, TryPaths>{{1, {{}, 1}}},
                                             std::chrono::seconds(20));
  EXPECT_THAT(std::get<Failure>(replies.at(1)).text, HasSubstr("no port for probes"));
  EXPECT_NO_THROW(listen_at("127.0.0.1", {net::Endpoint::parse(endpoint)->port, 0})) << endpoint;
}

TEST(PathProbe, OpensAsManyLinksAsPortsAllow) {
  ServedHosts hosts(2);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.2"}}, 3);
  EXPECT_EQ(ports.address(1, "127.0.0.2").endpoints.size(), 3U);
}

TEST(PathProbe, ReportsLostHost) {
  ServedHosts hosts(2);
  hosts.end(1);
  EXPECT_THAT(
      base::user_error(base::ExitCode::peer_lost,
                       [&] {
                         const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}, {"127.0.0.1"}});
                       }),
      HasSubstr("host h1: the connection to its agent is lost"));
}

TEST(PathProbe, ReturnsMeasurementErrorAsReply) {
  ServedHosts hosts(1);
  const OpenPorts ports(*hosts.agents, {{"127.0.0.1"}});
  const std::map<std::size_t, MeasureFlow> request{{0, {7, {"tcp://127.0.0.1:1"}}}};
  const auto replies = hosts.agents->ask_all(request, std::chrono::seconds(20));
  EXPECT_THAT(std::get<Failure>(replies.at(0)).text,
              AllOf(HasSubstr("agent 7 is not a peer"), Not(HasSubstr("invariant"))));
}

// Probes the path from host 0 to host 1, which says that it listens at this endpoint.
template <class Reply>
std::vector<PathProbe> probe_played(const std::string& endpoint, const Reply& tried) {
  ServedHosts hosts(2, [&](std::size_t host, const LauncherMessage&) {
    return host == 0 ? ReplyFrame<Reply>::format(tried)
                     : ReplyFrame<PortOpened>::format(PortOpened{{{"", {endpoint}}}, {}});
  });
  const OpenPorts ports(*hosts.agents, {{}, {"127.0.0.1"}});
  return probe_paths(*hosts.agents, ports, {{0, 1}});
}
std::string refusal(const std::string& endpoint, const PathsTried& tried) {
  return refusal_of<base::UserError>([&] { probe_played(endpoint, tried); });
}

TEST(PathProbe, RejectsReplyOfAnotherKind) {
  const auto tries = probe_played("tcp://127.0.0.1:1", FlowMeasured{});
  ASSERT_EQ(tries.size(), 1U);
  EXPECT_THAT(tries[0].problem, HasSubstr("its agent sent no reply to the request"));
}

TEST(PathProbe, NamesHostThatReportsNonsense) {
  EXPECT_THAT(refusal("next door", PathsTried{{{"", 0}}}),
              testing::AllOf(HasSubstr("host h1"), HasSubstr("next door")));
  EXPECT_THAT(refusal("tcp://127.0.0.1:1", PathsTried{}),
              HasSubstr("host h0 was asked to try 1 addresses and reports 0"));
}

TEST(PathProbe, PrefersAddressesOfRecipe) {
  HostFacts one;
  one.address = "10.0.0.1";
  one.addresses = {"192.168.0.1", "10.0.0.1", "fd00::1"};
  HostFacts two = one;
  std::vector<recipe::RecipeHost> listed(2);
  listed[1].address = "172.16.0.9";
  EXPECT_THAT(
      candidate_addresses(listed, {one, two}),
      ElementsAre(ElementsAre("10.0.0.1", "192.168.0.1", "fd00::1"), ElementsAre("172.16.0.9")));
}

TEST(ProbeRounds, EachPairOnceAndHostsDisjointPerRound) {
  for (std::size_t hosts = 2; hosts <= 17; ++hosts) {
    std::set<HostPair> seen;
    const auto rounds = probe_rounds(hosts);
    for (const auto& round : rounds) {
      std::set<std::size_t> busy;
      for (const auto& [one, other] : round) {
        EXPECT_LT(one, other);
        EXPECT_LT(other, hosts);
        EXPECT_TRUE(seen.insert({one, other}).second) << one << " and " << other << " twice";
        EXPECT_TRUE(busy.insert(one).second) << one << " measures twice at a time, of " << hosts;
        EXPECT_TRUE(busy.insert(other).second) << other << " measures twice, of " << hosts;
      }
    }
    EXPECT_EQ(seen.size(), hosts * (hosts - 1) / 2);
    EXPECT_EQ(rounds.size(), hosts % 2 == 0 ? hosts - 1 : hosts) << "as few rounds as can be";
  }
}

TEST(ProbeRounds, NoRoundsForOneHost) {
  EXPECT_TRUE(probe_rounds(1).empty());
  EXPECT_TRUE(probe_rounds(0).empty());
}

}  // namespace
}  // namespace strait::hosts
