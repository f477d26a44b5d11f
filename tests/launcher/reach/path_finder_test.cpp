#include "launcher/reach/path_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/net/memory_link.h"
#include "launcher/host/service_link.h"
#include "launcher/reach/compute_measure.h"
#include "launcher/reach/reach_end.h"
#include "launcher/reach/ticket.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The service of some hosts in one process, with real sockets between them.
struct ServedHosts {
  explicit ServedHosts(std::size_t count) {
    std::vector<Reach::Host> hosts;
    for (std::size_t i = 0; i < count; ++i) {
      const auto keeper = net::ProcessName::keeper(static_cast<std::uint32_t>(i));
      const auto launcher = net::ProcessName::coordinator();
      auto [near, far] = net::memory_link({launcher, {}, 1, options(keeper, keeper)},
                                          {keeper, {}, 1, options(keeper, launcher)});
      hosts.push_back({"h" + std::to_string(i), std::move(near)});
      ends.push_back(std::make_unique<ReachEnd>(std::move(far), static_cast<std::uint32_t>(i),
                                                std::pair(0, 0), measure_compute));
    }
    reach = std::make_unique<Reach>(std::move(hosts));
  }

  static net::LinkOptions options(net::ProcessName keeper, net::ProcessName peer) {
    return service_link(kReachService, keeper, peer, "", std::chrono::seconds(60));
  }

  std::vector<std::unique_ptr<ReachEnd>> ends;
  std::unique_ptr<Reach> reach;
};

TEST(PathFinder, TriesAllPairsAndFindsThoseThatWork) {
  ServedHosts hosts(3);
  const OpenPorts ports(*hosts.reach, {{"127.0.0.1"}, {"127.0.0.2"}, {"192.0.2.7"}});
  ASSERT_EQ(ports.troubles().size(), 1U);
  EXPECT_THAT(ports.troubles()[0], HasSubstr("host h2: listening on 192.0.2.7"));
  const auto tries = try_paths(*hosts.reach, ports, {{0, 1}, {1, 0}, {0, 2}});
  ASSERT_EQ(tries.size(), 2U) << "host 2 has no address to try";
  for (const PathTry& one : tries) EXPECT_EQ(one.trouble, "");
  ASSERT_NE(best_try(tries, 0, 1), nullptr);
  EXPECT_EQ(best_try(tries, 0, 1)->address, "127.0.0.2");
  EXPECT_EQ(best_try(tries, 0, 2), nullptr);
}

TEST(PathFinder, OfSeveralAddressesEachIsMeasured) {
  ServedHosts hosts(2);
  const OpenPorts ports(*hosts.reach, {{"127.0.0.1"}, {"127.0.0.2", "127.0.0.3"}});
  const auto tries = try_paths(*hosts.reach, ports, {{0, 1}, {1, 0}});
  ASSERT_EQ(tries.size(), 3U);
  EXPECT_GT(tries[0].bytes_per_second, 1e6);
  EXPECT_GT(tries[1].bytes_per_second, 1e6);
  EXPECT_EQ(tries[2].bytes_per_second, 0) << "there is nothing to choose from";
}

TEST(PathFinder, AddressesOfOneInterfaceAreNotCompared) {
  ServedHosts hosts(2);
  const OpenPorts ports(*hosts.reach, {{"127.0.0.1"}, {"127.0.0.1", "::1"}});
  if (!ports.troubles().empty()) GTEST_SKIP() << ports.troubles()[0];
  EXPECT_EQ(ports.wire(1, "::1"), ports.wire(1, "127.0.0.1"));
  const auto tries = try_paths(*hosts.reach, ports, {{0, 1}});
  ASSERT_EQ(tries.size(), 2U);
  for (const PathTry& one : tries) {
    EXPECT_EQ(one.trouble, "");
    EXPECT_EQ(one.bytes_per_second, 0) << one.address;
  }
}

TEST(PathFinder, EveryWireIsMeasuredWhoeverElseNeedsItsHosts) {
  ServedHosts hosts(4);
  const OpenPorts ports(*hosts.reach, {{"127.0.0.2", "127.0.0.3"},
                                       {"127.0.0.4", "127.0.0.5"},
                                       {"127.0.0.6", "127.0.0.7"},
                                       {"127.0.0.8"}});
  const auto tries = try_paths(*hosts.reach, ports, {{0, 1}, {1, 0}, {1, 2}, {2, 3}, {3, 2}});
  ASSERT_EQ(tries.size(), 9U);
  for (const PathTry& one : tries) {
    EXPECT_EQ(one.bytes_per_second > 1e6, one.to != 3) << one.from << " to " << one.address;
  }
}

TEST(PathFinder, PortsAreClosedBehindTheTries) {
  ServedHosts hosts(2);
  std::vector<std::vector<std::string>> places;
  std::string token;
  {
    const OpenPorts ports(*hosts.reach, {{"127.0.0.1"}, {"127.0.0.1"}});
    places = ports.places();
    token = ports.token();
  }
  const TryPaths order{token, {{1, places[1].at(0)}}, 3};
  // Host 1 answers only after it has closed its port.
  const auto behind = hosts.reach->ask({{1, TryPaths{token, {}, 1}}}, std::chrono::seconds(20));
  const auto answers = hosts.reach->ask({{0, order}}, std::chrono::seconds(20));
  const auto& tried = std::get<PathsTried>(answers.at(0));
  EXPECT_THAT(tried.results.at(0).trouble, HasSubstr("refused"));
  EXPECT_EQ(behind.size(), 1U);
}

TEST(PathFinder, AHostThatIsLostIsNamed) {
  ServedHosts hosts(2);
  hosts.ends[1].reset();
  try {
    const OpenPorts ports(*hosts.reach, {{"127.0.0.1"}, {"127.0.0.1"}});
    FAIL() << "nobody was missed";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("host h1 was lost"));
  }
}

TEST(PathFinder, ATroubleOfAMeasurementIsAnAnswer) {
  ServedHosts hosts(1);
  const MeasureTrip order{Ticket::random_token(), "tcp://127.0.0.1:1", 3};
  const auto answers = hosts.reach->ask({{0, order}}, std::chrono::seconds(20));
  EXPECT_THAT(std::get<OrderFailed>(answers.at(0)).text, HasSubstr("127.0.0.1:1"));
}

TEST(PathFinder, CandidatesAreWhatIsToldOrAllThereIs) {
  HostFacts one;
  one.address = "10.0.0.1";
  one.addresses = {"192.168.0.1", "10.0.0.1", "fd00::1"};
  HostFacts two = one;
  std::vector<RecipeHost> told(2);
  told[1].address = "172.16.0.9";
  EXPECT_THAT(
      candidate_addresses(told, {one, two}),
      ElementsAre(ElementsAre("10.0.0.1", "192.168.0.1", "fd00::1"), ElementsAre("172.16.0.9")));
}

TEST(ComputeMeasure, ABlockOfAModelHasARate) {
  ServedHosts hosts(1);
  const MeasureCompute order{R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 32,
                                 "n_embd": 32, "n_layer": 2, "n_head": 2})",
                             2, 16, 1};
  const auto answers = hosts.reach->ask({{0, order}}, std::chrono::seconds(60));
  const auto& measured = std::get<ComputeMeasured>(answers.at(0));
  EXPECT_GT(measured.flops_per_second, 1e6);
  EXPECT_GT(measured.backward, 0.1);
  EXPECT_LT(measured.backward, 100);
  EXPECT_GT(measured.memory_bytes_per_second, 1e8);
  const auto none =
      hosts.reach->ask({{0, MeasureCompute{"{}", 1, 8, 1}}}, std::chrono::seconds(60));
  EXPECT_THAT(std::get<OrderFailed>(none.at(0)).text, HasSubstr("model_type"));
}

}  // namespace
}  // namespace strait::launcher
