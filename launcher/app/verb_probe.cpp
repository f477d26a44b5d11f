#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/memory_link.h"
#include "framework/store/atomic_file.h"
#include "launcher/app/number_range.h"
#include "launcher/app/probe.h"
#include "launcher/app/run_options.h"
#include "launcher/app/verbs.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/launch/hosts_session.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/reach/reach_service.h"
#include "launcher/recipe/links.h"
#include "launcher/worker/commands.h"

namespace strait::app {
namespace {

struct ProbeFlags {
  RunOptions run;
  std::string out = "links.toml";
  double seconds = 4;  // of each measurement of bandwidth
};

ProbeOptions probe_options(const ProbeFlags& flags) {
  ProbeOptions options;
  options.flow_seconds = flags.seconds;
  options.print = [](const std::string& line) { std::cout << line << std::endl; };
  return options;
}

// A single machine has no paths between hosts, only its compute is measured.
Probed probe_here(const plan::Plan& plan, const ProbeOptions& options) {
  const auto agent = net::ProcessName::host_agent(0);
  const auto launcher = net::ProcessName::coordinator();
  const auto end_of = [&](net::ProcessName peer) {
    return hosts::service_link(hosts::kReachService, agent, peer, {}, std::chrono::seconds(1));
  };
  auto [near, far] =
      net::memory_link({launcher, {}, 1, end_of(agent)}, {agent, {}, 1, end_of(launcher)});
  net::NodeOptions node;
  node.name = agent;
  node.keys = net::CurveKeyPair::generate();
  const reach::ReachService end(std::move(far), node, {0, 0}, worker::measure_compute);
  std::vector<reach::ReachClient::Host> hosts;
  hosts.push_back({plan.hosts.at(0).name, std::move(near), node.keys.public_key});
  reach::ReachClient reach(std::move(hosts));
  return probe_hosts(reach, plan, {{"127.0.0.1"}}, options);
}

Probed probe_there(plan::Plan plan, const ProbeOptions& options) {
  const launch::ModelQuestions model = model_questions();
  launch::HostsSession session(std::move(plan), model, options.print);
  const plan::Plan& known = session.plan();
  return probe_hosts(session.hosts().reach(), known, session.hosts().addresses(known.recipe),
                     options);
}

base::ExitCode probe(const ProbeFlags& flags) {
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

}  // namespace

void add_probe(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<ProbeFlags>();
  CLI::App* verb = cli.add_subcommand("probe", "measure the hosts of a recipe and their links");
  verb->add_option("recipe", options->run.recipe, "a recipe file")->required();
  verb->add_option("-o,--out", options->out, "the table that hosts.links names")
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "of each measurement of bandwidth")
      ->check(number_range(0.1, 20.0))
      ->capture_default_str();
  add_overrides(verb, options->run.overrides);
  verb->callback([options, &command] { command = [options] { return probe(*options); }; });
}

}  // namespace strait::app
