#include "launcher/hosts/probe_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <set>

#include "framework/net/endpoint.h"
#include "launcher/hosts/flow.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/tcp_socket.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a frame of this size means. Frames of other sizes are the bytes of a flow.
constexpr std::size_t kEndBytes = 1;   // the flow has ended
constexpr std::size_t kPingBytes = 2;  // nothing: the confirmation by its link is what counts

// A peer may be asked to connect at any time until the launcher closes the port.
constexpr std::chrono::hours kExpected{24};
constexpr std::chrono::seconds kHold{10};
constexpr std::chrono::seconds kConnectLimit{20};  // of the further links of a flow
// Where one address of a host has answered, its others have this much more time. Many hosts have
// addresses that lead nowhere from outside, such as those of bridges for containers.
constexpr milliseconds kOtherAddresses{500};
constexpr milliseconds kTick{2};
constexpr int kPings = 3;  // of a try: the first one may find cold caches

// A frame takes this long, so that it goes in fragments of 10 ms, as the frames of training do.
constexpr double kFrameSeconds = 0.03;
constexpr double kLeastFrame = 4096;
constexpr double kLargestFrame = 4 << 20;
// A flow keeps two round trips in flight, or this much. With more, parallel flows overflow the
// queues on the path: TCP then waits for lost packets, and the measured rate is up to 17 % too
// high.
constexpr double kQueuedSeconds = 0.1;
constexpr double kFirstQueued = 128 << 10;  // while the speed of the path is not known

net::Frame zeros(std::size_t bytes) { return net::Frame(bytes, std::byte{0}); }

double seconds_of(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

double shortest_ping(net::Link& link, int count, ProbeLinks::Deadline deadline) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    link.send(zeros(kPingBytes));
    if (!link.flush(deadline)) throw PathError(link.state().peer + " does not answer");
    shortest = std::min(shortest, seconds_of(Clock::now() - start));
  }
  return shortest;
}

void send_on(net::Link& link, double duration, ProbeLinks::Deadline deadline) {
  shortest_ping(link, 1, deadline);  // the time in which a new link connects does not count
  const double queued_seconds = std::max(kQueuedSeconds, 2 * shortest_ping(link, 1, deadline));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(duration));
  while (Clock::now() < end) {
    const net::LinkState state = link.state();
    const double queued = std::max(kFirstQueued, queued_seconds * state.bytes_per_second);
    if (static_cast<double>(state.window_bytes) > queued) {
      link.receive_until(Clock::now() + kTick);  // waits, and throws if the link is lost
      continue;
    }
    const double bytes =
        std::clamp(kFrameSeconds * state.bytes_per_second, kLeastFrame, kLargestFrame);
    net::Frame frame = zeros(static_cast<std::size_t>(bytes));
    link.send_until(frame, end);
  }
  link.send(zeros(kEndBytes));
  if (!link.flush(deadline)) throw PathError(link.state().peer + " took too long to receive");
}

// Takes the frames that arrive until then. True once the flow has ended.
bool has_ended(net::Link& link, Clock::time_point until) {
  while (const auto frame = link.receive_until(until)) {
    if (frame->size() == kEndBytes) return true;
  }
  return false;
}

// What all the links together have received, and when its last byte arrived.
FlowSample sample_of(const std::vector<net::Link*>& links) {
  FlowSample sample;
  for (const net::Link* link : links) {
    const net::LinkState state = link->state();
    sample.bytes += state.received_bytes;
    sample.seconds = std::max(sample.seconds, seconds_of(state.last_data.time_since_epoch()));
  }
  return sample;
}

}  // namespace

ProbeLinks::ProbeLinks(net::NodeOptions node, std::pair<int, int> ports, const OpenPort& command)
    : name_(node.name), node_(std::move(node)) {
  for (const ProbePeer& peer : command.peers) keys_[peer.host] = peer.key;
  for (const std::string& address : command.addresses) {
    OpenedAddress opened;
    opened.interface = interface_of(address);
    try {
      for (std::int64_t i = 0; i < command.links; ++i) {
        listeners_.push_back(node_.listen({address, static_cast<std::uint16_t>(ports.first),
                                           static_cast<std::uint16_t>(ports.second)}));
        opened.endpoints.push_back(listeners_.back()->endpoint());
      }
    } catch (const net::LinkError& error) {
      // With fewer ports there are fewer parallel links.
      if (opened.endpoints.empty()) opened_.problems.emplace_back(error.what());
    }
    if (!opened.endpoints.empty()) opened_.addresses.push_back(std::move(opened));
  }
  for (const auto& listener : listeners_) {
    for (const auto& [peer, key] : keys_) {
      const std::string endpoint = listener->endpoint();
      const auto name = net::ProcessName::host_agent(static_cast<std::uint32_t>(peer));
      net::LinkOptions expected =
          options(peer, fmt::format("path {} to {}", name.text(), endpoint));
      expected.connect_limit = kExpected;
      expected_[{peer, endpoint}] = listener->expect(expected);
    }
  }
}

net::LinkOptions ProbeLinks::options(std::int64_t peer, const std::string& name) const {
  net::LinkOptions options;
  options.name = name;
  options.peer = net::ProcessName::host_agent(static_cast<std::uint32_t>(peer));
  const auto key = keys_.find(peer);
  if (key == keys_.end()) throw PathError(options.peer.describe() + " is not a peer to measure");
  options.peer_public_key = key->second;
  options.hold = kHold;
  return options;
}

net::Link& ProbeLinks::dial(std::int64_t peer, const std::string& endpoint, milliseconds limit) {
  std::unique_ptr<net::Link>& known = dialled_[{peer, endpoint}];
  if (!known) {
    net::LinkOptions dialled = options(peer, fmt::format("path {} to {}", name_.text(), endpoint));
    dialled.connect_limit = limit;
    known = node_.connect(endpoint, dialled);
  }
  return *known;
}

std::vector<net::Link*> ProbeLinks::links(std::int64_t peer,
                                          const std::vector<std::string>& endpoints) {
  std::vector<net::Link*> found;
  for (const std::string& endpoint : endpoints) {
    const auto expected = expected_.find({peer, endpoint});
    const bool here = expected != expected_.end() && !dialled_.contains({peer, endpoint});
    found.push_back(here ? expected->second.get() : &dial(peer, endpoint, kConnectLimit));
  }
  return found;
}

std::vector<PathResult> ProbeLinks::try_paths(std::span<const PathTarget> targets,
                                              milliseconds limit) {
  std::vector<PathResult> results(targets.size());
  std::map<std::int64_t, Clock::time_point> others_until;  // by host with an address that answered
  std::set<std::size_t> waiting;
  const auto give_up = [&](std::size_t i, const std::string& cause) {
    waiting.erase(i);
    results[i].problem = fmt::format("{}: {}", targets[i].endpoint, cause);
    dialled_.erase({targets[i].host, targets[i].endpoint});
  };
  const auto attempt = [&](std::size_t i, auto&& act) {
    try {
      act(dial(targets[i].host, targets[i].endpoint, limit));
    } catch (const net::LinkError& error) {
      // The error of the link names a process; here the address matters.
      give_up(i, error.kind() == net::LinkError::Kind::lost
                     ? fmt::format("no answer within {:g} s", seconds_of(limit))
                 : error.kind() == net::LinkError::Kind::unauthenticated
                     ? "another host answers there"
                     : error.what());
    } catch (const PathError& error) {
      give_up(i, error.what());
    }
  };
  for (std::size_t i = 0; i < targets.size(); ++i) {
    waiting.insert(i);
    attempt(i, [](net::Link& link) { link.send(zeros(kPingBytes)); });
  }
  while (!waiting.empty()) {
    for (const std::size_t i : std::set<std::size_t>(waiting)) {
      attempt(i, [&](net::Link& link) {
        const std::int64_t host = targets[i].host;
        if (link.flush(Clock::now() + kTick)) {
          waiting.erase(i);
          others_until.try_emplace(host, Clock::now() + kOtherAddresses);
        } else if (others_until.contains(host) && Clock::now() > others_until[host]) {
          give_up(i, "no answer, but another address of the host has answered");
        }
      });
    }
  }
  // After the last handshake, which would delay them.
  std::vector<std::future<double>> trips(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!results[i].problem.empty()) continue;
    trips[i] = std::async(std::launch::async, shortest_ping,
                          std::ref(dial(targets[i].host, targets[i].endpoint, limit)), kPings,
                          Clock::now() + limit);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!trips[i].valid()) continue;
    attempt(i, [&](net::Link&) { results[i].seconds = trips[i].get(); });
  }
  return results;
}

double ProbeLinks::round_trip(const PathTarget& target, int count, Deadline deadline) {
  return shortest_ping(dial(target.host, target.endpoint, kConnectLimit), count, deadline);
}

void ProbeLinks::send_flow(std::int64_t peer, const std::vector<std::string>& endpoints,
                           double seconds, Deadline deadline) {
  std::vector<std::future<void>> flows;
  for (net::Link* link : links(peer, endpoints)) {
    flows.push_back(std::async(std::launch::async, send_on, std::ref(*link), seconds, deadline));
  }
  for (auto& flow : flows) flow.get();
}

double ProbeLinks::receive_flow(std::int64_t peer, const std::vector<std::string>& endpoints,
                                Deadline deadline) {
  const std::vector<net::Link*> all = links(peer, endpoints);
  std::vector<net::Link*> open = all;
  // In one thread: totals of threads that are held up at different moments would not add up.
  std::vector<FlowSample> samples = {{seconds_of(Clock::now().time_since_epoch()), 0}};
  const std::uint64_t earlier = sample_of(all).bytes;
  while (!open.empty()) {
    if (Clock::now() >= deadline) {
      throw PathError(open.front()->state().peer + " has not finished sending in time");
    }
    const auto tick = Clock::now() + kTick;
    std::erase_if(open, [tick](net::Link* link) { return has_ended(*link, tick); });
    // Once one flow has ended, the path is not full any more.
    if (open.size() < all.size()) continue;
    const FlowSample now = sample_of(all);
    if (now.seconds > samples.back().seconds) samples.push_back({now.seconds, now.bytes - earlier});
  }
  return flow_rate_of_samples(samples);
}

}  // namespace strait::hosts
