#include "launcher/reach/reach_end.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>

#include "framework/net/link_error.h"
#include "launcher/base/control_error.h"
#include "launcher/base/failure.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/reach/path_measure.h"

namespace strait::reach {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReachTick = std::chrono::milliseconds(100);
constexpr auto kMeasureLimit = std::chrono::seconds(45);

net::Endpoint place_of(const std::string& text) {
  const auto place = net::Endpoint::parse(text);
  if (!place) throw PathError(text + " is no address of the form tcp://ADDRESS:PORT");
  return *place;
}

}  // namespace

ReachEnd::ReachEnd(std::unique_ptr<net::Link> link, std::uint32_t host, std::pair<int, int> ports,
                   Measure measure)
    : link_(std::move(link)),
      host_(host),
      ports_(std::move(ports)),
      measure_(std::move(measure)),
      thread_([this] { serve(); }) {}

ReachEnd::~ReachEnd() {
  leaving_ = true;
  thread_.join();
}

void ReachEnd::serve() {
  try {
    while (!leaving_) {
      const auto frame = link_->receive_until(Clock::now() + kReachTick);
      if (!frame) continue;
      const auto answer = obey(parse_reach_order(*frame));
      if (answer) link_->send(format(*answer));
    }
  } catch (const net::LinkError& error) {
    spdlog::info("no more questions about paths: {}", error.what());
  } catch (const base::ControlError& error) {
    spdlog::error("{}", error.what());
    link_->abort(net::LinkError(net::LinkError::Kind::aborted, error.what()));
  }
}

// What goes wrong is the answer: the launcher knows what it means for the run.
std::optional<ReachAnswer> ReachEnd::obey(const ReachOrder& order) {
  try {
    return std::visit([this](const auto& known) { return answer(known); }, order);
  } catch (const std::exception& error) {
    return OrderFailed{base::describe_failure(error).text};
  }
}

std::optional<ReachAnswer> ReachEnd::answer(const OpenPort& order) {
  port_.reset();
  port_ =
      std::make_unique<ReachPort>(ReachPort::Options{order.addresses, ports_, order.token, host_});
  PortOpened opened;
  for (const net::Endpoint& place : port_->endpoints()) {
    opened.places.push_back(place.text());
    opened.wires.push_back(hosts::interface_of(place.host));
  }
  opened.troubles = port_->troubles();
  return opened;
}

std::optional<ReachAnswer> ReachEnd::answer(const TryPaths& order) {
  std::vector<DialTarget> targets;
  for (const PathTarget& target : order.targets) {
    targets.push_back({static_cast<std::uint32_t>(target.host), place_of(target.place)});
  }
  PathsTried tried;
  for (DialResult& result : dial_all(targets, order.token, order.limit_seconds)) {
    tried.results.push_back({std::move(result.trouble), result.seconds});
  }
  return tried;
}

std::optional<ReachAnswer> ReachEnd::answer(const MeasureTrip& order) {
  return TripMeasured{round_trip(place_of(order.place), order.token, static_cast<int>(order.count),
                                 Clock::now() + kMeasureLimit)};
}

std::optional<ReachAnswer> ReachEnd::answer(const MeasureFlow& order) {
  const auto direction = order.from_there ? FlowDirection::from_there : FlowDirection::to_there;
  return FlowMeasured{flow_rate(place_of(order.place), order.token, direction,
                                static_cast<int>(order.connections), order.seconds,
                                Clock::now() + kMeasureLimit)};
}

std::optional<ReachAnswer> ReachEnd::answer(const MeasureCompute& order) { return measure_(order); }

std::optional<ReachAnswer> ReachEnd::answer(const DialRelay& order) {
  return RelayDialled{relay_ends().dial(place_of(order.relay), order.token).text()};
}

std::optional<ReachAnswer> ReachEnd::answer(const BindRelay& order) {
  relay_ends().bind(place_of(order.relay), order.token, place_of(order.stage));
  return std::nullopt;
}

std::optional<ReachAnswer> ReachEnd::answer(const ClosePort& /*order*/) {
  port_.reset();
  return std::nullopt;
}

RelayEnds& ReachEnd::relay_ends() {
  if (!relay_ends_) {
    relay_ends_ =
        std::make_unique<RelayEnds>([](const std::string& event) { spdlog::warn("{}", event); });
  }
  return *relay_ends_;
}

}  // namespace strait::reach
