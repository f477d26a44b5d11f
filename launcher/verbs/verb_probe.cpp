#include "launcher/verbs/verb_probe.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <utility>

#include "framework/net/memory_link.h"
#include "framework/store/atomic_file.h"
#include "launcher/host/service_link.h"
#include "launcher/plan/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/probe/probe.h"
#include "launcher/reach/compute_measure.h"
#include "launcher/reach/reach_end.h"
#include "launcher/recipe/links_writer.h"
#include "launcher/recipe/recipe_reader.h"
#include "launcher/run/hosts_visit.h"

namespace strait::launcher {
namespace {

ProbeOptions probe_options(const ProbeWords& words) {
  ProbeOptions options;
  options.flow_seconds = words.seconds;
  options.say = [](const std::string& line) { std::cout << line << std::endl; };
  return options;
}

// One machine has no path to measure: what runs on it talks to itself.
Probed probe_here(const Plan& plan, const ProbeOptions& options) {
  const auto keeper = net::ProcessName::keeper(0);
  const auto launcher = net::ProcessName::coordinator();
  const auto end_of = [&](net::ProcessName peer) {
    return service_link(kReachService, keeper, peer, {}, std::chrono::seconds(1));
  };
  auto [near, far] =
      net::memory_link({launcher, {}, 1, end_of(keeper)}, {keeper, {}, 1, end_of(launcher)});
  const ReachEnd end(std::move(far), 0, {0, 0}, measure_compute);
  std::vector<Reach::Host> hosts;
  hosts.push_back({plan.hosts.at(0).name, std::move(near)});
  Reach reach(std::move(hosts));
  return probe_hosts(reach, plan, {{"127.0.0.1"}}, options);
}

Probed probe_there(Plan plan, const ProbeOptions& options) {
  HostsVisit visit(std::move(plan), options.say);
  const Plan& known = visit.plan();
  return probe_hosts(visit.hosts().reach(), known, visit.hosts().addresses(known.recipe), options);
}

}  // namespace

ExitCode probe(const ProbeWords& words) {
  const Recipe recipe = read_recipe(words.recipe, words.overrides, load_plugins);
  Plan plan = make_plan(recipe).plan;
  const ProbeOptions options = probe_options(words);
  const bool here = recipe.hosts.backend == BackendKind::local;
  const Probed probed = here ? probe_here(plan, options) : probe_there(std::move(plan), options);
  const std::string heading =
      fmt::format("Measured by strait probe for {} on {:%Y-%m-%d %H:%M} UTC.", recipe.name,
                  fmt::gmtime(std::time(nullptr)));
  store::replace_file(words.out, write_links(probed.table, heading));
  for (const std::string& gap : probed.gaps) std::cout << "not measured: " << gap << "\n";
  std::cout << fmt::format("written {0}; a recipe uses it by hosts.links = \"{0}\"\n", words.out);
  return ExitCode::done;
}

}  // namespace strait::launcher
