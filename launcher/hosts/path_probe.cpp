#include "launcher/hosts/path_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "framework/net/endpoint.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/hosts/tcp_socket.h"

namespace strait::hosts {
namespace {

using std::chrono::seconds;

constexpr double kDialSeconds = 3;  // two SYN retransmissions of TCP
constexpr seconds kDialTimeout{20};
constexpr double kCompareSeconds = 0.6;  // enough to distinguish a fast path from a slow one
// Longer than kMeasureLimit of the hosts, so that their own error is reported.
constexpr seconds kFlowTimeout{60};

using Wire = std::tuple<std::size_t, std::size_t, std::string>;  // from a host to another's

// Places are what a host says of itself.
void check_place(const std::string& host, const std::string& place) {
  if (net::Endpoint::parse(place)) return;
  throw base::UserError(base::ExitCode::internal,
                        fmt::format("host {} says that it listens at \"{}\", which is no address",
                                    host, base::printable(place)));
}

// The first try that got there over each wire, where several wires lead from one host to another.
std::vector<const PathProbe*> rivals_of(const OpenPorts& ports,
                                        const std::vector<PathProbe>& tries) {
  std::map<Wire, const PathProbe*> first;
  for (const PathProbe& one : tries) {
    if (one.trouble.empty())
      first.try_emplace({one.from, one.to, ports.wire(one.to, one.address)}, &one);
  }
  std::vector<const PathProbe*> rivals;
  for (const auto& [wire, one] : first) {
    const bool choice = std::ranges::count_if(first, [one = one](const auto& other) {
                          return other.second->from == one->from && other.second->to == one->to;
                        }) > 1;
    if (choice) rivals.push_back(one);
  }
  return rivals;
}

// Those of them whose hosts no other of the result has.
std::vector<const PathProbe*> take_apart(std::vector<const PathProbe*>& rivals) {
  std::set<std::size_t> busy;
  std::vector<const PathProbe*> apart;
  std::erase_if(rivals, [&](const PathProbe* one) {
    if (busy.contains(one->from) || busy.contains(one->to)) return false;
    busy.insert({one->from, one->to});
    apart.push_back(one);
    return true;
  });
  return apart;
}

// Of wires that lead to the same host, how fast each is.
void compare_speeds(ReachClient& reach, const OpenPorts& ports, std::vector<PathProbe>& tries) {
  std::map<Wire, double> speeds;
  for (auto rivals = rivals_of(ports, tries); !rivals.empty();) {
    const auto apart = take_apart(rivals);
    std::map<std::size_t, ReachCommand> commands;
    for (const PathProbe* one : apart) {
      commands[one->from] = MeasureFlow{ports.token(), ports.endpoint(one->to, one->address), false,
                                        1, kCompareSeconds};
    }
    const auto answers = reach.ask(commands, kFlowTimeout);
    for (const PathProbe* one : apart) {
      const auto* measured = std::get_if<FlowMeasured>(&answers.at(one->from));
      if (measured == nullptr) continue;
      speeds[{one->from, one->to, ports.wire(one->to, one->address)}] = measured->bytes_per_second;
    }
  }
  for (PathProbe& one : tries) {
    if (!one.trouble.empty()) continue;
    const auto speed = speeds.find({one.from, one.to, ports.wire(one.to, one.address)});
    if (speed != speeds.end()) one.bytes_per_second = speed->second;
  }
}

}  // namespace

std::vector<std::vector<std::string>> candidate_addresses(
    const std::vector<recipe::RecipeHost>& listed, const std::vector<HostFacts>& facts) {
  std::vector<std::vector<std::string>> addresses;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    std::vector<std::string> own;
    if (!listed[i].address.empty()) {
      own = {listed[i].address};
    } else {
      own = {facts[i].address};
      for (const std::string& address : facts[i].addresses) {
        if (std::ranges::find(own, address) == own.end()) own.push_back(address);
      }
    }
    addresses.push_back(std::move(own));
  }
  return addresses;
}

OpenPorts::OpenPorts(ReachClient& reach, const std::vector<std::vector<std::string>>& addresses)
    : reach_(reach), token_(Preamble::random_token()) {
  std::map<std::size_t, ReachCommand> commands;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!addresses[i].empty()) commands[i] = OpenPort{token_, addresses[i]};
  }
  places_.resize(addresses.size());
  wires_.resize(addresses.size());
  for (const auto& [host, answer] : reach_.ask(commands, kDialTimeout)) {
    std::string trouble;
    if (const auto* opened = answer_in<PortOpened>(answer, trouble)) {
      places_[host] = opened->places;
      wires_[host] = opened->wires;
      wires_[host].resize(places_[host].size());
      for (std::size_t i = 0; i < places_[host].size(); ++i) {
        check_place(reach_.name(host), places_[host][i]);
        if (wires_[host][i].empty()) wires_[host][i] = places_[host][i];
      }
      for (const std::string& one : opened->troubles) {
        troubles_.push_back(fmt::format("host {}: {}", reach_.name(host), one));
      }
    } else {
      troubles_.push_back(fmt::format("host {}: {}", reach_.name(host), trouble));
    }
  }
}

OpenPorts::~OpenPorts() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].empty()) continue;
    try {
      reach_.give(i, ClosePort{});
    } catch (const base::UserError& lost) {
      // Its port is closed with it; the next request to that host reports the loss.
      static_cast<void>(lost);
    }
  }
}

std::size_t OpenPorts::index(std::size_t host, const std::string& address) const {
  const auto found = std::ranges::find_if(places_[host], [&](const std::string& text) {
    return net::Endpoint::parse(text)->host == address;
  });
  return static_cast<std::size_t>(found - places_[host].begin());
}

const std::string& OpenPorts::endpoint(std::size_t host, const std::string& address) const {
  return places_[host].at(index(host, address));
}

const std::string& OpenPorts::wire(std::size_t host, const std::string& address) const {
  return wires_[host].at(index(host, address));
}

std::vector<PathProbe> probe_paths(ReachClient& reach, const OpenPorts& ports,
                                   const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  std::vector<PathProbe> tries;
  std::map<std::size_t, TryPaths> commands;
  std::map<std::size_t, std::vector<std::size_t>> tries_of;  // by the host that probes
  for (const auto& [from, to] : pairs) {
    for (const std::string& place : ports.places()[to]) {
      TryPaths& command = commands[from];
      command.token = ports.token();
      command.limit_seconds = kDialSeconds;
      command.targets.push_back({static_cast<std::int64_t>(to), place});
      tries_of[from].push_back(tries.size());
      tries.push_back({from, to, net::Endpoint::parse(place)->host, "not tried", 0, 0});
    }
  }
  const auto answers = reach.ask(
      std::map<std::size_t, ReachCommand>(commands.begin(), commands.end()), kDialTimeout);
  for (const auto& [from, answer] : answers) {
    std::string trouble;
    const auto* tried = answer_in<PathsTried>(answer, trouble);
    if (tried != nullptr && tried->results.size() != tries_of[from].size()) {
      throw base::UserError(
          base::ExitCode::internal,
          fmt::format("host {} was asked to try {} addresses and reports {}", reach.name(from),
                      tries_of[from].size(), tried->results.size()));
    }
    for (std::size_t i = 0; i < tries_of[from].size(); ++i) {
      PathProbe& one = tries[tries_of[from][i]];
      one.trouble = tried != nullptr ? tried->results[i].trouble : trouble;
      if (tried != nullptr) one.seconds = tried->results[i].seconds;
    }
  }
  compare_speeds(reach, ports, tries);
  return tries;
}

// The circle method of round-robin tournaments: one slot is fixed, the others rotate by one per
// round, and opposite slots are a pair. With an odd number of hosts one slot is empty.
std::vector<std::vector<HostPair>> probe_rounds(std::size_t hosts) {
  std::vector<std::vector<HostPair>> rounds;
  if (hosts < 2) return rounds;
  const std::size_t slots = hosts + hosts % 2;
  const std::size_t moving = slots - 1;
  for (std::size_t round = 0; round < moving; ++round) {
    std::vector<HostPair> pairs;
    for (std::size_t i = 0; i < slots / 2; ++i) {
      const std::size_t one = i == 0 ? moving : (round + i) % moving;
      const std::size_t other = (round + moving - i) % moving;
      if (one < hosts && other < hosts)
        pairs.emplace_back(std::min(one, other), std::max(one, other));
    }
    if (!pairs.empty()) rounds.push_back(std::move(pairs));
  }
  return rounds;
}

}  // namespace strait::hosts
