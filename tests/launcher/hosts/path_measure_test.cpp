#include "launcher/hosts/path_measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "launcher/hosts/probe_server.h"

namespace strait::hosts {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

Instant soon() { return std::chrono::steady_clock::now() + seconds(20); }

struct PortOfHost {
  explicit PortOfHost(std::uint32_t host, const std::string& address = "127.0.0.1")
      : port({{address}, {0, 0}, token, host}) {}

  const net::Endpoint& place() const { return port.endpoints().at(0); }

  static inline const std::string token = Preamble::random_token();
  ProbeServer port;
};

TEST(PathMeasure, ReachesAnsweringHost) {
  const PortOfHost host(7);
  const auto results = dial_all({{7, host.place()}}, PortOfHost::token, 3);
  EXPECT_EQ(results.at(0).trouble, "");
  EXPECT_GT(results.at(0).seconds, 0);
}

TEST(PathMeasure, RefusesAnswerOfAnotherHost) {
  const PortOfHost host(7);
  const auto results = dial_all({{8, host.place()}}, PortOfHost::token, 3);
  EXPECT_THAT(results.at(0).trouble, HasSubstr("another host answers there"));
}

TEST(PathMeasure, ReportsClosedPortAndWrongToken) {
  net::Endpoint closed;
  {
    const PortOfHost gone(1);
    closed = gone.place();
  }
  const PortOfHost host(2);
  const auto results = dial_all({{1, closed}, {2, host.place()}}, Preamble::random_token(), 3);
  EXPECT_THAT(results.at(0).trouble, HasSubstr("Connection refused"));
  EXPECT_THAT(results.at(0).trouble, HasSubstr(closed.host_and_port()));
  EXPECT_NE(results.at(1).trouble, "");
}

TEST(PathMeasure, ReportsInvalidAddress) {
  const auto results = dial_all({{1, {"no address", 47000}}}, PortOfHost::token, 3);
  EXPECT_THAT(results.at(0).trouble, HasSubstr("no address"));
}

TEST(PathMeasure, ReachesHostOverIpv6) {
  const PortOfHost host(3, "::1");
  if (host.port.endpoints().empty()) GTEST_SKIP() << host.port.troubles().at(0);
  const auto results = dial_all({{3, host.place()}}, PortOfHost::token, 3);
  EXPECT_EQ(results.at(0).trouble, "");
  EXPECT_EQ(host.place().host_and_port(), "[::1]:" + std::to_string(host.place().port));
}

TEST(PathMeasure, MeasuresRoundTripsAndFlows) {
  const PortOfHost host(1);
  const double trip = round_trip(host.place(), PortOfHost::token, 20, soon());
  EXPECT_GT(trip, 0);
  for (const FlowDirection direction : {FlowDirection::from_there, FlowDirection::to_there}) {
    for (const int connections : {1, 3}) {
      EXPECT_GT(flow_rate(host.place(), PortOfHost::token, direction, connections, 0.1, soon()),
                1e6);
    }
  }
}

TEST(PathMeasure, ReportsHostLostDuringMeasurement) {
  auto host = std::make_unique<PortOfHost>(1);
  const net::Endpoint place = host->place();
  host.reset();
  EXPECT_THROW(round_trip(place, PortOfHost::token, 1, soon()), PathError);
  EXPECT_THROW(flow_rate(place, PortOfHost::token, FlowDirection::to_there, 1, 0.1, soon()),
               PathError);
}

TEST(ProbeServer, ReportsForeignAddress) {
  const ProbeServer port({{"192.0.2.1", "127.0.0.1"}, {0, 0}, PortOfHost::token, 0});
  EXPECT_EQ(port.endpoints().size(), 1U);
  ASSERT_EQ(port.troubles().size(), 1U);
  EXPECT_THAT(port.troubles()[0], HasSubstr("192.0.2.1"));
}

TEST(ProbeServer, ReportsTakenPortRange) {
  const BoundPort taken = listen_at("127.0.0.1", {0, 0});
  const int number = taken.endpoint.port;
  const ProbeServer port({{"127.0.0.1"}, {number, number}, PortOfHost::token, 0});
  ASSERT_EQ(port.troubles().size(), 1U);
  EXPECT_THAT(port.troubles()[0], HasSubstr(std::to_string(number)));
  EXPECT_THAT(port.troubles()[0], HasSubstr("widen hosts.ports"));
}

}  // namespace
}  // namespace strait::hosts
