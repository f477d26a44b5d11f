#include "launcher/app/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "launcher/base/text.h"
#include "launcher/reach/path_probe.h"

namespace strait::app {
namespace {

using std::chrono::seconds;

// Of one measurement on all hosts; the longest flow takes 20 s (--seconds), compute up to 50 s.
constexpr seconds kProbeTimeout{120};

constexpr int kPings = 60;  // of a measurement of latency

// Two hosts, the first of which dials the second, and what was measured between them.
struct ProbedPair {
  std::size_t dials = 0;
  std::size_t listens = 0;
  std::vector<std::string> endpoints;  // one per parallel link
  double round_trip = 0;
  double there = 0;  // bytes per second from the dialling host
  double back = 0;
  double flows_there = 0;
  double flows_back = 0;
  std::string problem;
};

class Prober {
 public:
  Prober(reach::ReachClient& reach, const plan::Plan& plan,
         const std::vector<std::vector<std::string>>& addresses, const ProbeOptions& options)
      : reach_(reach),
        plan_(plan),
        options_(options),
        ports_(reach, addresses, options.connections) {
    gaps_ = ports_.problems();
  }

  void measure_paths();
  void measure_hosts();
  Probed take() { return {std::move(table_), std::move(gaps_)}; }

 private:
  std::optional<ProbedPair> reached_pair(const reach::HostPair& pair,
                                         const std::vector<reach::PathProbe>& tries);
  void measure_round(std::vector<ProbedPair>& pairs);
  void measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                     double ProbedPair::*rate);
  void add_pair(const ProbedPair& pair);
  void add_direction(std::size_t from, std::size_t to, double rate, double flows,
                     double round_trip);
  const std::string& name(std::size_t host) const { return plan_.hosts[host].name; }

  reach::ReachClient& reach_;
  const plan::Plan& plan_;
  const ProbeOptions& options_;
  reach::OpenPorts ports_;
  recipe::LinkTable table_;
  std::vector<std::string> gaps_;
};

void Prober::measure_paths() {
  const auto rounds = reach::probe_rounds(plan_.hosts.size());
  std::vector<reach::HostPair> both_ways;
  for (const auto& round : rounds) {
    for (const auto& [one, other] : round) {
      both_ways.emplace_back(one, other);
      both_ways.emplace_back(other, one);
    }
  }
  if (both_ways.empty()) return;
  const std::vector<reach::PathProbe> tries = reach::probe_paths(reach_, ports_, both_ways);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    std::vector<ProbedPair> pairs;
    std::vector<std::string> names;
    for (const reach::HostPair& pair : rounds[i]) {
      if (auto known = reached_pair(pair, tries)) {
        names.push_back(fmt::format("{} and {}", name(known->dials), name(known->listens)));
        pairs.push_back(std::move(*known));
      }
    }
    if (pairs.empty()) continue;
    options_.print(fmt::format("round {} of {}: {}", i + 1, rounds.size(), fmt::join(names, ", ")));
    measure_round(pairs);
    for (const ProbedPair& pair : pairs) add_pair(pair);
  }
}

// Which host dials which; none where neither can.
std::optional<ProbedPair> Prober::reached_pair(const reach::HostPair& pair,
                                               const std::vector<reach::PathProbe>& tries) {
  auto [dials, listens] = pair;
  const reach::PathProbe* direction = reach::best_probe(tries, dials, listens);
  if (direction == nullptr) {
    std::swap(dials, listens);
    direction = reach::best_probe(tries, dials, listens);
  }
  if (direction == nullptr) {
    gaps_.push_back(fmt::format("{} and {} cannot reach each other; their links would be relayed",
                                name(dials), name(listens)));
    return std::nullopt;
  }
  ProbedPair known;
  known.dials = dials;
  known.listens = listens;
  known.endpoints = ports_.address(listens, direction->address).endpoints;
  return known;
}

// All pairs of a round measure the same thing at the same time: where they share a switch, pings of
// one must not queue after a flow of another.
void Prober::measure_round(std::vector<ProbedPair>& pairs) {
  std::map<std::size_t, reach::ReachCommand> orders;
  for (const ProbedPair& pair : pairs) {
    orders[pair.dials] = reach::MeasureRoundTrip{
        {static_cast<std::int64_t>(pair.listens), pair.endpoints.front()}, kPings};
  }
  const auto answers = reach_.ask(orders, kProbeTimeout);
  for (ProbedPair& pair : pairs) {
    const auto* measured =
        answer_in<reach::RoundTripMeasured>(answers.at(pair.dials), pair.problem);
    if (measured != nullptr) pair.round_trip = measured->seconds;
  }
  measure_flows(pairs, 1, false, &ProbedPair::there);
  measure_flows(pairs, 1, true, &ProbedPair::back);
  measure_flows(pairs, options_.connections, false, &ProbedPair::flows_there);
  measure_flows(pairs, options_.connections, true, &ProbedPair::flows_back);
}

void Prober::measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                           double ProbedPair::*rate) {
  std::map<std::size_t, reach::ReachCommand> orders;
  for (const ProbedPair& pair : pairs) {
    if (!pair.problem.empty()) continue;
    const auto [to, from] =
        from_there ? std::pair(pair.dials, pair.listens) : std::pair(pair.listens, pair.dials);
    std::vector<std::string> endpoints = pair.endpoints;
    endpoints.resize(std::min(endpoints.size(), static_cast<std::size_t>(connections)));
    orders[to] = reach::ReceiveFlow{static_cast<std::int64_t>(from), endpoints};
    orders[from] = reach::SendFlow{static_cast<std::int64_t>(to), endpoints, options_.flow_seconds};
  }
  const auto answers = reach_.ask(orders, kProbeTimeout);
  for (ProbedPair& pair : pairs) {
    if (!pair.problem.empty()) continue;
    const auto* measured = answer_in<reach::FlowMeasured>(
        answers.at(from_there ? pair.dials : pair.listens), pair.problem);
    if (measured != nullptr) pair.*rate = measured->bytes_per_second;
  }
}

void Prober::add_pair(const ProbedPair& pair) {
  if (!pair.problem.empty()) {
    gaps_.push_back(
        fmt::format("{} to {}: {}", name(pair.dials), name(pair.listens), pair.problem));
    return;
  }
  add_direction(pair.dials, pair.listens, pair.there, pair.flows_there, pair.round_trip);
  add_direction(pair.listens, pair.dials, pair.back, pair.flows_back, pair.round_trip);
}

void Prober::add_direction(std::size_t from, std::size_t to, double rate, double flows,
                           double round_trip) {
  if (rate <= 0) {
    gaps_.push_back(
        fmt::format("{} to {}: too few bytes arrived to measure the rate", name(from), name(to)));
    return;
  }
  table_.links.push_back({name(from), name(to), 8 * rate, 8 * flows, round_trip / 2});
  options_.print(fmt::format("  {} to {}: {:.1f} Mbit/s, {} connections {:.1f}, {:.2f} ms",
                             name(from), name(to), 8e-6 * rate, options_.connections, 8e-6 * flows,
                             5e2 * round_trip));
}

void Prober::measure_hosts() {
  options_.print("layers and memory");
  std::map<std::size_t, reach::ReachCommand> orders;
  std::map<std::size_t, std::int64_t> threads;
  for (const plan::Plan::Process& process : plan_.processes) {
    threads[process.host_index] = std::max(threads[process.host_index], process.threads);
  }
  for (const auto& [host, count] : threads) {
    orders[host] =
        reach::MeasureCompute{plan_.model_config, plan_.micro_batch_rows(), plan_.recipe.data.row,
                              count, plan_.recipe.model.device != recipe::Device::cpu};
  }
  for (const auto& [host, answer] : reach_.ask(orders, kProbeTimeout)) {
    std::string problem;
    const auto* measured = answer_in<reach::ComputeMeasured>(answer, problem);
    if (measured == nullptr) {
      gaps_.push_back(fmt::format("{}: {}", name(host), problem));
      continue;
    }
    table_.hosts.push_back({name(host), measured->flops_per_second, measured->backward,
                            threads.at(host), measured->memory_bytes_per_second,
                            measured->gpu_memory});
    options_.print(fmt::format(
        "  {}: {:.1f} Gflop/s with {}, backward {:.2f} times a forward, "
        "memory {:.1f} GB/s",
        name(host), measured->flops_per_second / 1e9, base::counted(threads.at(host), "thread"),
        measured->backward, measured->memory_bytes_per_second / 1e9));
  }
}

}  // namespace

Probed probe_hosts(reach::ReachClient& reach, const plan::Plan& plan,
                   const std::vector<std::vector<std::string>>& addresses,
                   const ProbeOptions& options) {
  Prober prober(reach, plan, addresses, options);
  prober.measure_paths();
  prober.measure_hosts();
  return prober.take();
}

}  // namespace strait::app
