#include "launcher/cli/ask_model.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "launcher/cli/run_options.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/planner/inference_plan.h"
#include "launcher/run/run_launch.h"

namespace strait::cli {
namespace {

// What takes long, and what went wrong, on stderr: stdout is for the answers.
class StderrObserver : public run::RunObserver {
 public:
  void event(const std::string& /*source*/, const run::Event& event) override { warn(event.text); }
};

base::ExitCode ask_hosts(const std::filesystem::path& path, const RunCheckpoint& source,
                         run::InferenceClient& client) {
  plan::RunFile run = source.run;
  run.plan = planner::inference_plan(run.plan);
  run::RunDirectory directory = run::RunDirectory::open(path);
  const auto rendezvous = hosts::open_rendezvous(run.plan.recipe, directory.path());
  for (const std::string& line : hosts::join_instructions(run.plan.recipe, directory.path())) {
    std::cerr << line << '\n';
  }
  StderrObserver observer;
  run::LaunchOptions options;
  options.resume = std::filesystem::absolute(source.checkpoint).string();
  options.from = source.step;
  options.model = model_questions();
  options.observers = {&observer};
  options.rendezvous = rendezvous.get();
  options.inference = &client;
  const run::Outcome outcome = run::launch_inference(directory, run, options);
  if (rendezvous) rendezvous->end(outcome.code, outcome.cause);
  if (outcome.code != base::ExitCode::done) std::cerr << "strait: " << outcome.cause << '\n';
  if (outcome.code == base::ExitCode::done && !client.finished())
    return base::ExitCode::interrupted;
  return outcome.code;
}

}  // namespace

void add_place(CLI::App* verb, Place& place) {
  // A transformer over the enum would take its numbers, too.
  const std::map<std::string, Place> places = {
      {"auto", Place::automatic}, {"here", Place::here}, {"hosts", Place::hosts}};
  verb->add_option_function<std::string>(
          "--on", [places, &place](const std::string& name) { place = places.at(name); },
          "here: in this process; hosts: over the run's stages; auto: here if the model fits into "
          "memory")
      ->check(CLI::IsMember({"auto", "here", "hosts"}))
      ->default_str("auto");
}

Place choose_place(const RunCheckpoint& source, Place wanted) {
  const recipe::BackendKind backend = source.run.plan.recipe.hosts.backend;
  if (wanted != Place::automatic) return wanted;
  return recipe::stores_on_hosts(backend) && !fits_here(source) ? Place::hosts : Place::here;
}

std::size_t requests_in_flight(const RunCheckpoint& source, Place place) {
  if (place == Place::here) return 1;
  return 2 * static_cast<std::size_t>(source.run.plan.recipe.pipeline.stages);
}

base::ExitCode ask_model(const std::filesystem::path& run, const RunCheckpoint& source, Place place,
                         run::InferenceClient& client) {
  if (place == Place::hosts) return ask_hosts(run, source, client);
  worker::answer_here(*load_whole_model(source), client);
  return base::ExitCode::done;
}

}  // namespace strait::cli
