

#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

struct Launch {
  RunOptions run;
  std::string engine;
  int nodes = 0;
  double cpus = 1;
  double gpus = 0;
  int wait = 600;
  int restarts = 3;
};

// Becomes the script that speaks to Ray, whose tasks run this program on every node.
base::ExitCode launch_on_ray(const Launch& launch) {
  static constexpr base::PythonScript kScript = {"strait-ray.py", "speaks to Ray",
                                                 "the package ray"};
  std::vector<std::string> words = base::start_of(kScript);
  const std::vector<std::string> command = {
      "--nodes",    std::to_string(launch.nodes),    "--cpus",       fmt::format("{}", launch.cpus),
      "--gpus",     fmt::format("{}", launch.gpus),  "--wait",       std::to_string(launch.wait),
      "--restarts", std::to_string(launch.restarts), "--",           base::own_program().string(),
      "run",        launch.run.recipe.string(),      "--rendezvous", "--resume-if-exists"};
  std::ranges::copy(command, std::back_inserter(words));
  for (const std::string& one : launch.run.overrides) {
    words.emplace_back("--set");
    words.push_back(one);
  }
  base::replace_process(std::move(words), kScript);
}

}  // namespace

void add_launch(CLI::App& cli, Command& command) {
  const auto launch = std::make_shared<Launch>();
  CLI::App* verb = cli.add_subcommand("launch", "start a run on the nodes of an engine's cluster");
  verb->add_option("recipe", launch->run.recipe, "a recipe file, which every node can read")
      ->required();
  verb->add_option("--engine", launch->engine, "ray: the cluster at $RAY_ADDRESS, or of this host")
      ->required()
      ->check(CLI::IsMember({"ray"}));
  verb->add_option("--nodes", launch->nodes, "how many; one task runs on each")
      ->required()
      ->check(CLI::Range(1, 1024));
  verb->add_option("--cpus", launch->cpus, "of each node")
      ->check(number_range(0, 1e6))
      ->capture_default_str();
  verb->add_option("--gpus", launch->gpus, "of each node")
      ->check(number_range(0, 1e6))
      ->capture_default_str();
  verb->add_option("--wait", launch->wait, "seconds for the nodes to be free")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verb->add_option("--restarts", launch->restarts, "after a node or process that is lost")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  add_overrides(verb, launch->run.overrides);
  verb->callback([launch, &command] { command.run = [launch] { return launch_on_ray(*launch); }; });
}

}  // namespace strait::cli
