#include "launcher/hosts/probe_links.h"

#include <fmt/format.h>

#include <future>
#include <iterator>
#include <set>

#include "framework/net/endpoint.h"
#include "launcher/base/median.h"
#include "launcher/hosts/forwarding.h"
#include "launcher/hosts/host_facts.h"

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
// Far below kQueuedSeconds, so that a sender which waits for room never lets the path run empty.
constexpr milliseconds kTick{2};

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

// ---- the rate of a flow

constexpr double kSlowStart = 1.0 / 3;  // share of the time in which TCP finds its speed
// Their median ignores stalls in up to three of them.
constexpr int kPieces = 8;

// The last sample before the moment; null if there is none.
const FlowSample* last_before(std::span<const FlowSample> samples, double moment) {
  const auto after = std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  return after == samples.begin() ? nullptr : &*std::prev(after);
}

double rate_between(const FlowSample& from, const FlowSample& to) {
  return static_cast<double>(to.bytes - from.bytes) / (to.seconds - from.seconds);
}

// The rates of kPieces equal parts of the time after `start`. A stall spoils only one of them.
std::vector<double> piece_rates(std::span<const FlowSample> samples, double start) {
  const double end = samples.back().seconds;
  std::vector<double> rates;
  for (int piece = 0; piece < kPieces; ++piece) {
    const double length = (end - start) / kPieces;
    const FlowSample* from = last_before(samples, start + piece * length);
    const FlowSample* to = last_before(samples, start + (piece + 1) * length);
    if (piece + 1 == kPieces) to = &samples.back();
    if (from == nullptr || to == nullptr || to->seconds <= from->seconds) continue;
    rates.push_back(rate_between(*from, *to));
  }
  return rates;
}

// The sample that is furthest ahead of a steady flow of this rate: at that moment no byte waited
// for a lost packet.
const FlowSample& furthest(std::span<const FlowSample> samples, double rate) {
  return *std::ranges::max_element(samples, {}, [rate](const FlowSample& sample) {
    return static_cast<double>(sample.bytes) - rate * sample.seconds;
  });
}

// The rate between such a sample in the first third and one in the last third.
double burst_rate(std::span<const FlowSample> samples, double start) {
  const double third = (samples.back().seconds - start) / 3;
  const auto at = [&](double moment) {
    return std::ranges::lower_bound(samples, moment, {}, &FlowSample::seconds);
  };
  const std::span<const FlowSample> early(at(start), at(start + third));
  const std::span<const FlowSample> late(at(start + 2 * third), samples.end());
  if (early.empty() || late.empty()) return 0;
  double rate = rate_between(early.front(), late.back());
  constexpr int kRounds = 4;  // each finds better samples by the rate of the last round
  for (int i = 0; i < kRounds; ++i) {
    rate = rate_between(furthest(early, rate), furthest(late, rate));
  }
  return rate;
}

}  // namespace

double flow_rate_of_samples(std::span<const FlowSample> samples) {
  if (samples.size() < 2) return 0;
  const double end = samples.back().seconds;
  const double start = samples.front().seconds + kSlowStart * (end - samples.front().seconds);
  const std::vector<double> rates = piece_rates(samples, start);
  if (rates.empty()) return 0;
  // Where packets are lost, bytes arrive in bursts, and most pieces contain too few.
  return std::max(base::median(rates), burst_rate(samples, start));
}

ProbeLinks::ProbeLinks(net::NodeOptions node, std::pair<int, int> ports, const OpenPort& request)
    : name_(node.name), node_(std::move(node)) {
  for (const ProbePeer& peer : request.peers) keys_[peer.host] = peer.key;
  for (const std::string& address : request.addresses) {
    OpenedAddress opened;
    opened.interface = interface_of(address);
    try {
      for (std::int64_t i = 0; i < request.links; ++i) {
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
                                              milliseconds limit, int pings) {
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
                          std::ref(dial(targets[i].host, targets[i].endpoint, limit)), pings,
                          Clock::now() + limit);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!trips[i].valid()) continue;
    attempt(i, [&](net::Link&) { results[i].seconds = trips[i].get(); });
  }
  return results;
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
