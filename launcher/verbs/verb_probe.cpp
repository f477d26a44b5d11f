#include "launcher/verbs/verb_probe.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>

#include "framework/net/memory_link.h"
#include "framework/net/node.h"
#include "framework/store/atomic_file.h"
#include "launcher/control/stop_signals.h"
#include "launcher/host/service_link.h"
#include "launcher/join/join_call.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/probe/probe.h"
#include "launcher/reach/compute_measure.h"
#include "launcher/reach/path_finder.h"
#include "launcher/reach/reach_end.h"
#include "launcher/recipe/links_writer.h"
#include "launcher/recipe/recipe_reader.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_hosts.h"
#include "launcher/user_error.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

// What keepers need a run's directory for, gone with this.
class ProbeDirectory {
 public:
  ProbeDirectory() {
    std::string path = (fs::temp_directory_path() / "strait-probe-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      throw UserError(ExitCode::storage_io, "cannot make a directory like " + path);
    }
    path_ = path;
  }
  ~ProbeDirectory() {
    std::error_code ignored;  // a directory of temporary files goes some day
    fs::remove_all(path_, ignored);
  }
  ProbeDirectory(const ProbeDirectory&) = delete;
  ProbeDirectory& operator=(const ProbeDirectory&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

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

Probed probe_there(RunFile run, const ProbeOptions& options) {
  const ProbeDirectory scratch;
  const StopSignals signals;
  RunDirectory directory =
      RunDirectory::create(scratch.path() / "run", RunDirectory::Existing::refuse);
  net::NodeOptions node_options;
  node_options.name = net::ProcessName::coordinator();
  node_options.run = run.run;
  node_options.generation = directory.next_generation();
  node_options.keys = net::CurveKeyPair::generate();
  net::Node node(node_options);
  if (run.plan.recipe.hosts.backend == BackendKind::join) {
    for (const std::string& note : join_notes(run.plan, directory.path())) options.say(note);
  }
  RunHosts hosts(node, run, directory, signals.count());
  return probe_hosts(hosts.reach(), run.plan, hosts.addresses(run.plan.recipe), options);
}

}  // namespace

ExitCode probe(const ProbeWords& words) {
  const Recipe recipe = read_recipe(words.recipe, words.overrides, load_plugins);
  RunFile run{net::RunId::random(), make_plan(recipe).plan};
  const ProbeOptions options = probe_options(words);
  const bool here = recipe.hosts.backend == BackendKind::local;
  const Probed probed = here ? probe_here(run.plan, options) : probe_there(std::move(run), options);
  const std::string heading =
      fmt::format("Measured by strait probe for {} on {:%Y-%m-%d %H:%M} UTC.", recipe.name,
                  fmt::gmtime(std::time(nullptr)));
  store::replace_file(words.out, write_links(probed.table, heading));
  for (const std::string& gap : probed.gaps) std::cout << "not measured: " << gap << "\n";
  std::cout << fmt::format("written {0}; a recipe uses it by hosts.links = \"{0}\"\n", words.out);
  return ExitCode::done;
}

}  // namespace strait::launcher
