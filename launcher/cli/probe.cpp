#include "launcher/cli/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "launcher/base/text.h"
#include "launcher/hosts/path_probe.h"

namespace strait::cli {
namespace {

using std::chrono::seconds;

// Of one measurement on all hosts; the longest flow takes 20 s (--seconds), compute up to 50 s.
constexpr seconds kProbeTimeout{120};

constexpr int kEchoes = 60;  // of a measurement of latency

// Two hosts, the first of which dials the second, and what was measured between them.
struct ProbedPair {
  std::size_t dials = 0;
  std::size_t listens = 0;
  std::string endpoint;
  double round_trip = 0;
  double there = 0;  // bytes per second from the dialling host
  double back = 0;
  double flows_there = 0;
  double flows_back = 0;
  std::string trouble;
};

class Prober {
 public:
  Prober(hosts::ReachClient& reach, const plan::Plan& plan,
         const std::vector<std::vector<std::string>>& addresses, const ProbeOptions& options)
      : reach_(reach), plan_(plan), options_(options), ports_(reach, addresses) {
    gaps_ = ports_.troubles();
  }

  void measure_paths();
  void measure_hosts();
  Probed take() { return {std::move(table_), std::move(gaps_)}; }

 private:
  std::optional<ProbedPair> reached_pair(const hosts::HostPair& pair,
                                         const std::vector<hosts::PathProbe>& tries);
  void measure_round(std::vector<ProbedPair>& pairs);
  void measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                     double ProbedPair::*rate);
  std::map<std::size_t, hosts::ReachAnswer> measure_from_dialers(
      const std::vector<ProbedPair>& pairs,
      const std::function<hosts::ReachCommand(const ProbedPair&)>& order);
  void add_pair(const ProbedPair& pair);
  void add_direction(std::size_t from, std::size_t to, double rate, double flows,
                     double round_trip);
  const std::string& name(std::size_t host) const { return plan_.hosts[host].name; }

  hosts::ReachClient& reach_;
  const plan::Plan& plan_;
  const ProbeOptions& options_;
  hosts::OpenPorts ports_;
  recipe::LinkTable table_;
  std::vector<std::string> gaps_;
};

// All pairs of a round measure the same thing at the same time: where they share a switch, echoes
// of one must not queue behind a flow of another.
std::map<std::size_t, hosts::ReachAnswer> Prober::measure_from_dialers(
    const std::vector<ProbedPair>& pairs,
    const std::function<hosts::ReachCommand(const ProbedPair&)>& order) {
  std::map<std::size_t, hosts::ReachCommand> orders;
  for (const ProbedPair& pair : pairs) {
    if (pair.trouble.empty()) orders.emplace(pair.dials, order(pair));
  }
  return reach_.ask(orders, kProbeTimeout);
}

void Prober::measure_paths() {
  const auto rounds = hosts::probe_rounds(plan_.hosts.size());
  std::vector<hosts::HostPair> both_ways;
  for (const auto& round : rounds) {
    for (const auto& [one, other] : round) {
      both_ways.emplace_back(one, other);
      both_ways.emplace_back(other, one);
    }
  }
  if (both_ways.empty()) return;
  const std::vector<hosts::PathProbe> tries = hosts::probe_paths(reach_, ports_, both_ways);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    std::vector<ProbedPair> pairs;
    std::vector<std::string> names;
    for (const hosts::HostPair& pair : rounds[i]) {
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
std::optional<ProbedPair> Prober::reached_pair(const hosts::HostPair& pair,
                                               const std::vector<hosts::PathProbe>& tries) {
  auto [dials, listens] = pair;
  const hosts::PathProbe* direction = hosts::best_probe(tries, dials, listens);
  if (direction == nullptr) {
    std::swap(dials, listens);
    direction = hosts::best_probe(tries, dials, listens);
  }
  if (direction == nullptr) {
    gaps_.push_back(fmt::format("{} and {} cannot reach each other; their links would be relayed",
                                name(dials), name(listens)));
    return std::nullopt;
  }
  ProbedPair known;
  known.dials = dials;
  known.listens = listens;
  known.endpoint = ports_.endpoint(listens, direction->address);
  return known;
}

void Prober::measure_round(std::vector<ProbedPair>& pairs) {
  const auto answers = measure_from_dialers(pairs, [&](const ProbedPair& pair) {
    return hosts::MeasureRoundTrip{ports_.token(), pair.endpoint, kEchoes};
  });
  for (ProbedPair& pair : pairs) {
    const auto* measured =
        answer_in<hosts::RoundTripMeasured>(answers.at(pair.dials), pair.trouble);
    if (measured != nullptr) pair.round_trip = measured->seconds;
  }
  measure_flows(pairs, 1, false, &ProbedPair::there);
  measure_flows(pairs, 1, true, &ProbedPair::back);
  measure_flows(pairs, options_.connections, false, &ProbedPair::flows_there);
  measure_flows(pairs, options_.connections, true, &ProbedPair::flows_back);
}

void Prober::measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                           double ProbedPair::*rate) {
  const auto answers = measure_from_dialers(pairs, [&](const ProbedPair& pair) {
    return hosts::MeasureFlow{ports_.token(), pair.endpoint, from_there, connections,
                              options_.flow_seconds};
  });
  for (ProbedPair& pair : pairs) {
    const auto answer = answers.find(pair.dials);
    if (answer == answers.end()) continue;
    const auto* measured = answer_in<hosts::FlowMeasured>(answer->second, pair.trouble);
    if (measured != nullptr) pair.*rate = measured->bytes_per_second;
  }
}

void Prober::add_pair(const ProbedPair& pair) {
  if (!pair.trouble.empty()) {
    gaps_.push_back(
        fmt::format("{} to {}: {}", name(pair.dials), name(pair.listens), pair.trouble));
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
  std::map<std::size_t, hosts::ReachCommand> orders;
  std::map<std::size_t, std::int64_t> threads;
  for (const plan::Plan::Process& process : plan_.processes) {
    threads[process.host_index] = std::max(threads[process.host_index], process.threads);
  }
  for (const auto& [host, count] : threads) {
    orders[host] =
        hosts::MeasureCompute{plan_.model_config, plan_.micro_batch_rows(), plan_.recipe.data.row,
                              count, plan_.recipe.model.device != recipe::Device::cpu};
  }
  for (const auto& [host, answer] : reach_.ask(orders, kProbeTimeout)) {
    std::string trouble;
    const auto* measured = answer_in<hosts::ComputeMeasured>(answer, trouble);
    if (measured == nullptr) {
      gaps_.push_back(fmt::format("{}: {}", name(host), trouble));
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

Probed probe_hosts(hosts::ReachClient& reach, const plan::Plan& plan,
                   const std::vector<std::vector<std::string>>& addresses,
                   const ProbeOptions& options) {
  Prober prober(reach, plan, addresses, options);
  prober.measure_paths();
  prober.measure_hosts();
  return prober.take();
}

}  // namespace strait::cli
