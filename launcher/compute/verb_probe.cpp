#include <fmt/chrono.h>

#include <ctime>
#include <iostream>

#include "framework/store/atomic_file.h"
#include "launcher/compute/verbs.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/path_probe.h"
#include "launcher/hosts/path_service.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/run/hosts_session.h"
#include "launcher/worker/commands.h"

namespace strait::compute {
namespace {

struct ProbeOptions {
  double flow_seconds = 4;                        // of each measurement of bandwidth
  int connections = 4;                            // of the parallel measurement
  std::function<void(const std::string&)> print;  // prints a line; never empty
};

struct Probed {
  recipe::LinkTable table;
  std::vector<std::string> gaps;  // measurements that failed, with the cause
};

using std::chrono::seconds;

// Of one measurement on all hosts; the longest flow takes 20 s (--seconds), compute up to 50 s.
constexpr seconds kProbeTimeout{120};

// Of a measurement of latency.
constexpr int kPings = 60;
constexpr double kPingSeconds = 45;

// Two hosts and what was measured between them. The first dials the second.
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
  Prober(hosts::HostAgents& agents, const plan::Plan& plan,
         const std::vector<std::vector<std::string>>& addresses, const ProbeOptions& options)
      : agents_(agents),
        plan_(plan),
        options_(options),
        ports_(agents, addresses, options.connections) {
    gaps_ = ports_.problems();
  }

  void measure_paths();
  Probed take() { return {{{}, std::move(links_)}, std::move(gaps_)}; }

 private:
  std::optional<ProbedPair> reached_pair(const hosts::HostPair& pair,
                                         const std::vector<hosts::PathProbe>& tries);
  void measure_round(std::vector<ProbedPair>& pairs);
  void measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                     double ProbedPair::*rate);
  void add_pair(const ProbedPair& pair);
  void add_direction(std::size_t from, std::size_t to, double rate, double flows,
                     double round_trip);
  const std::string& name(std::size_t host) const { return plan_.hosts[host].name; }

  hosts::HostAgents& agents_;
  const plan::Plan& plan_;
  const ProbeOptions& options_;
  hosts::OpenPorts ports_;
  std::vector<recipe::MeasuredLink> links_;
  std::vector<std::string> gaps_;
};

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
  const std::vector<hosts::PathProbe> tries = hosts::probe_paths(agents_, ports_, both_ways);
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
    // One direction is enough: links are made in whichever one works.
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
  known.endpoints = ports_.address(listens, direction->address).endpoints;
  return known;
}

// All pairs of a round measure the same thing at the same time: where they share a switch, pings of
// one must not queue after a flow of another.
void Prober::measure_round(std::vector<ProbedPair>& pairs) {
  std::map<std::size_t, hosts::TryPaths> requests;
  for (const ProbedPair& pair : pairs) {
    requests[pair.dials] = {
        {{static_cast<std::int64_t>(pair.listens), pair.endpoints.front()}}, kPingSeconds, kPings};
  }
  const auto replies = agents_.ask_all(requests, kProbeTimeout);
  for (ProbedPair& pair : pairs) {
    const auto* tried = hosts::content_of(replies.at(pair.dials), pair.problem);
    if (tried == nullptr || tried->results.empty()) continue;
    pair.problem = tried->results.front().problem;
    pair.round_trip = tried->results.front().seconds;
  }
  measure_flows(pairs, 1, false, &ProbedPair::there);
  measure_flows(pairs, 1, true, &ProbedPair::back);
  // Several at once show what one connection leaves unused on a long or lossy path.
  measure_flows(pairs, options_.connections, false, &ProbedPair::flows_there);
  measure_flows(pairs, options_.connections, true, &ProbedPair::flows_back);
}

void Prober::measure_flows(std::vector<ProbedPair>& pairs, int connections, bool from_there,
                           double ProbedPair::*rate) {
  std::map<std::size_t, hosts::MeasureFlow> requests;
  for (const ProbedPair& pair : pairs) {
    if (!pair.problem.empty()) continue;
    const auto [to, from] =
        from_there ? std::pair(pair.dials, pair.listens) : std::pair(pair.listens, pair.dials);
    std::vector<std::string> endpoints = pair.endpoints;
    endpoints.resize(std::min(endpoints.size(), static_cast<std::size_t>(connections)));
    requests[to] = {static_cast<std::int64_t>(from), endpoints};
    requests[from] = {static_cast<std::int64_t>(to), endpoints, options_.flow_seconds};
  }
  const auto replies = agents_.ask_all(requests, kProbeTimeout);
  for (ProbedPair& pair : pairs) {
    if (!pair.problem.empty()) continue;
    const auto* measured =
        hosts::content_of(replies.at(from_there ? pair.dials : pair.listens), pair.problem);
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
  links_.push_back({name(from), name(to), 8 * rate, 8 * flows, round_trip / 2});
  options_.print(fmt::format("  {} to {}: {:.1f} Mbit/s, {} connections {:.1f}, {:.2f} ms",
                             name(from), name(to), 8e-6 * rate, options_.connections, 8e-6 * flows,
                             5e2 * round_trip));
}

using Measure = std::function<std::map<std::size_t, hosts::ReplyTo<hosts::MeasureCompute>>(
    const std::map<std::size_t, hosts::MeasureCompute>&)>;

// How fast each host computes a layer at the recipe's sizes with the planned threads, and copies
// memory.
void measure_hosts(const plan::Plan& plan, const ProbeOptions& options, const Measure& measure,
                   Probed& probed) {
  options.print("layers and memory");
  std::map<std::size_t, hosts::MeasureCompute> requests;
  std::map<std::size_t, std::int64_t> threads;
  for (const plan::Plan::Process& process : plan.processes) {
    threads[process.host_index] = std::max(threads[process.host_index], process.threads);
  }
  for (const auto& [host, count] : threads) {
    requests[host] =
        hosts::MeasureCompute{plan.model_config, plan.micro_batch_rows(), plan.recipe.data.row,
                              count, plan.recipe.model.device != recipe::Device::cpu};
  }
  for (const auto& [host, reply] : measure(requests)) {
    const std::string& name = plan.hosts[host].name;
    std::string problem;
    const auto* measured = hosts::content_of(reply, problem);
    if (measured == nullptr) {
      probed.gaps.push_back(fmt::format("{}: {}", name, problem));
      continue;
    }
    probed.table.hosts.push_back({name, measured->flops_per_second, measured->backward,
                                  threads.at(host), measured->memory_bytes_per_second, /*waited=*/0,
                                  measured->gpu_memory});
    options.print(fmt::format(
        "  {}: {:.1f} Gflop/s with {}, backward {:.2f} times a forward, memory {:.1f} GB/s", name,
        measured->flops_per_second / 1e9, base::counted(threads.at(host), "thread"),
        measured->backward, measured->memory_bytes_per_second / 1e9));
  }
}

ProbeOptions probe_options(const cli::ProbeFlags& flags) {
  ProbeOptions options;
  options.flow_seconds = flags.seconds;
  options.print = [](const std::string& line) { std::cout << line << std::endl; };
  return options;
}

// A single machine has no paths between hosts, only its compute is measured.
Probed probe_here(const plan::Plan& plan, const ProbeOptions& options) {
  hosts::PathService here({}, {0, 0}, worker::measure_compute);
  Probed probed;
  measure_hosts(
      plan, options,
      [&here](const auto& requests) {
        std::map<std::size_t, hosts::ReplyTo<hosts::MeasureCompute>> replies;
        for (const auto& [host, request] : requests) replies[host] = here.perform(request);
        return replies;
      },
      probed);
  return probed;
}

// Measures every pair of the plan's hosts, latency and bandwidth in both directions, with one
// connection and with several, in rounds in which each host has one partner. Then, on idle links,
// measures the hosts.
Probed probe_there(plan::Plan plan, const ProbeOptions& options) {
  const run::ModelQuestions model = model_questions();
  run::HostsSession session(std::move(plan), model, options.print);
  const plan::Plan& known = session.plan();
  hosts::HostAgents& agents = session.hosts().agents_to_measure();
  Prober prober(agents, known, session.hosts().addresses(known.recipe), options);
  prober.measure_paths();
  Probed probed = prober.take();
  measure_hosts(
      known, options,
      [&agents](const auto& requests) { return agents.ask_all(requests, kProbeTimeout); }, probed);
  return probed;
}

}  // namespace

base::ExitCode perform(const cli::ProbeFlags& flags) {
  const recipe::Recipe recipe = read_recipe(flags.run);
  // Before the measurement, which takes minutes: whether the file can be written.
  { const store::AtomicFile trial(flags.out); }
  plan::Plan plan = planner::make_plan(recipe).plan;
  const ProbeOptions options = probe_options(flags);
  const bool here = recipe.hosts.backend == recipe::BackendKind::local;
  const Probed probed = here ? probe_here(plan, options) : probe_there(std::move(plan), options);
  const std::string heading =
      fmt::format("Measured by strait probe for {} on {:%Y-%m-%d %H:%M} UTC.", recipe.name,
                  fmt::gmtime(std::time(nullptr)));
  store::replace_file(flags.out, recipe::write_links(probed.table, heading));
  for (const std::string& gap : probed.gaps) std::cout << "not measured: " << gap << "\n";
  std::cout << fmt::format("written {0}; a recipe uses it by hosts.links = \"{0}\"\n", flags.out);
  return base::ExitCode::done;
}

}  // namespace strait::compute
