#include "launcher/compute/ask_model.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <iostream>

#include "launcher/base/machine.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/loaded_run.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/planner/model_weights.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/planned_model.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_launch.h"
#include "launcher/worker/compute_device.h"
#include "launcher/worker/streamed_layers.h"

namespace strait::compute {
namespace {

bool weights_are_here(const std::filesystem::path& run) {
  return !store::list_checkpoints(run, store::Verify::sizes, store::Part::weights).complete.empty();
}

constexpr double kShare = 0.8;  // the rest is for keys, values and what a layer computes
// What libraries keep from the first pass on: kernels that they write, buffers of threads. Measured
// 15 to 18 MB on a CPU.
constexpr std::int64_t kLibraries = 32 << 20;

std::int64_t weight_bytes(const RunCheckpoint& source) {
  std::int64_t bytes = 0;
  for (const models::LayerCost& layer : models::describe(source.config).layers) {
    bytes += (layer.parameters - layer.quantized.parameters) * 4 + layer.quantized.bytes;
  }
  return bytes;
}

std::int64_t memory_for_weights(std::int64_t available) {
  const auto share = static_cast<std::int64_t>(kShare * static_cast<double>(available));
  return std::max<std::int64_t>(0, std::min(share, available - kLibraries));
}

bool fits(const RunCheckpoint& source, std::int64_t available) {
  return available == 0 || weight_bytes(source) <= memory_for_weights(available);
}

// Of a checkpoint whose weights are here.
store::Step step_of(const std::filesystem::path& run, const plan::Plan& plan,
                    const std::string& which) {
  std::vector<store::Step> here;
  std::vector<std::string> names;
  for (const store::Checkpoint& one :
       store::list_checkpoints(run, store::Verify::sizes, store::Part::weights).complete) {
    here.push_back(one.manifest.step);
    names.push_back(fmt::format("{}", number(one.manifest.step)));
  }
  if (which == "best") {
    const auto best = store::best_of(here, losses_of(run, plan).best(1));
    if (!best.empty()) return best.front();
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no checkpoint whose step was evaluated, so none is the best; give "
                    "newest or a step: {}",
                    run.string(), fmt::join(names, ", ")));
  }
  const auto named = std::ranges::find(names, which);
  if (named != names.end()) return here[static_cast<std::size_t>(named - names.begin())];
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format(
          "--checkpoint is {}, but must be newest, best, or the step of a checkpoint that {} "
          "has here: {}",
          base::printable(which), run.string(), fmt::join(names, ", ")));
}

// Of the device, in bytes; 0: not known.
std::int64_t available_on(at::Device device) {
  if (!device.is_cuda()) return base::host_memory().available;
  const std::size_t free = at::accelerator::getMemoryInfo(device.index()).first;
  return static_cast<std::int64_t>(std::max<std::size_t>(free, 1));
}

// A GPU of this machine with room for the model, unless the recipe wants none.
at::Device device_for(const RunCheckpoint& source) {
  const bool none = source.run.plan.recipe.model.device == recipe::Device::cpu;
  const at::Device device =
      worker::choose_device(none ? recipe::Device::cpu : recipe::Device::automatic,
                            worker::accelerators_here(), 0, "this machine");
  if (!device.is_cuda()) return device;
  return fits(source, available_on(device)) ? device : at::Device(at::kCPU);
}

// What takes long, and what went wrong, on stderr: stdout is for the answers.
class StderrObserver : public run::RunObserver {
 public:
  void event(const std::string& /*source*/, const run::Event& event) override {
    cli::warn(event.text);
  }
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
  run::Outcome outcome;
  try {
    outcome = run::launch_inference(directory, run, options);
  } catch (const base::UserError& failure) {
    // Hosts that have joined would wait for another launcher.
    if (rendezvous) rendezvous->end(failure.code(), failure.what());
    throw;
  }
  if (rendezvous) rendezvous->end(outcome.code, outcome.cause);
  if (outcome.code != base::ExitCode::done) std::cerr << "strait: " << outcome.cause << '\n';
  if (outcome.code == base::ExitCode::done && !client.finished())
    return base::ExitCode::interrupted;
  return outcome.code;
}

std::unique_ptr<worker::ModelPart> stream_model(
    const RunCheckpoint& source, std::unique_ptr<models::Model> model,
    const std::shared_ptr<const planner::CheckpointWeights>& weights, std::int64_t available) {
  const std::int64_t memory = memory_for_weights(available);
  const std::int64_t least = worker::StreamedLayers::least_bytes(*model);
  if (least > memory) {
    throw base::UserError(
        base::ExitCode::out_of_memory,
        fmt::format("{} of memory are free, and weights may take {} of it, but embedding, head and "
                    "what is read with them take {}; split the model over hosts: --on hosts",
                    base::byte_text(available), base::byte_text(memory), base::byte_text(least)));
  }
  auto streamed = std::make_unique<worker::StreamedLayers>(
      *model, [weights](const std::string& name) { return weights->read(name); }, memory);
  cli::warn(
      fmt::format("{} of weights do not fit into {} of free memory, so {} of {} blocks are read "
                  "from their files whenever they compute",
                  base::byte_text(weight_bytes(source)), base::byte_text(available),
                  streamed->streamed(), streamed->blocks()));
  return std::make_unique<worker::ModelPart>(std::move(model), at::kCPU, std::function<void()>(),
                                             std::move(streamed));
}

}  // namespace

RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory,
                              const std::string& which) {
  RunCheckpoint whole;
  whole.run = load_run(run_directory);
  whole.config = planner::planned_model(whole.run.plan);
  const recipe::Recipe::Checkpoint& settings = whole.run.plan.recipe.checkpoint;
  if (settings.home == recipe::CheckpointHome::none && !weights_are_here(run_directory)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "the weights of {} stay on its hosts (checkpoint.home = \"none\"); fetch them with: {}",
        run_directory.string(), base::strait_command("resume", run_directory));
  }
  if (which != cli::kNewest) {
    whole.step = step_of(run_directory, whole.run.plan, which);
    whole.checkpoint = store::checkpoint_directory(run_directory, whole.step);
    store::open_checkpoint(whole.checkpoint, store::Verify::hashes, store::Part::weights);
    return whole;
  }
  const auto newest = store::choose_checkpoint(run_directory, store::Part::weights);
  const bool has_ended = !run::RunDirectory::live(run_directory);
  if (!newest && has_ended) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "{} has no complete checkpoint, and the run has ended; begin again with: {}",
        run_directory.string(), run::run_again_command(run_directory));
  }
  if (!newest) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has no complete checkpoint yet; let the run reach one "
                          "(checkpoint.every = {}) or stop it with: {}",
                          run_directory.string(), whole.run.plan.recipe.checkpoint.every,
                          base::strait_command("stop", run_directory));
  }
  whole.checkpoint = newest->checkpoint.path;
  // A live run is writing its next checkpoint, and no sentence is due to that.
  const bool damaged = !newest->damage.empty();
  if (has_ended || damaged) whole.warning = newest->warning;
  whole.step = newest->checkpoint.manifest.step;
  return whole;
}

bool fits_here(const RunCheckpoint& source) { return fits(source, base::host_memory().available); }

std::unique_ptr<worker::ModelPart> load_whole_model(const RunCheckpoint& source) {
  // As many threads as a stage had, so that sums have the same bits as in the run. More would also
  // be slower: a token of a small model is less work than waking them.
  at::set_num_threads(static_cast<int>(source.run.plan.processes.front().threads));
  const at::Device device = device_for(source);
  const auto layers = static_cast<int>(models::describe(source.config).layers.size());
  // Before the model is made, which takes no memory yet.
  const std::int64_t available = base::host_memory().available;
  const bool resident = device.is_cuda() || fits(source, available);
  auto model = models::make_model(source.config, {0, layers - 1}, at::kFloat, device);
  const auto read = std::make_shared<const planner::CheckpointWeights>(
      source.run.plan.recipe, source.config, source.checkpoint);
  if (!resident) return stream_model(source, std::move(model), read, available);
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : model->parameters()) {
    if (parameter.owned) models::assign(parameter, read->read(parameter.name));
  }
  return std::make_unique<worker::ModelPart>(std::move(model), device);
}

cli::Place choose_place(const RunCheckpoint& source, cli::Place wanted) {
  const recipe::BackendKind backend = source.run.plan.recipe.hosts.backend;
  if (wanted != cli::Place::automatic) return wanted;
  return recipe::stores_on_hosts(backend) && !fits_here(source) ? cli::Place::hosts
                                                                : cli::Place::here;
}

std::size_t requests_in_flight(const RunCheckpoint& source, cli::Place place) {
  if (place == cli::Place::here) return 1;
  return 2 * static_cast<std::size_t>(source.run.plan.recipe.pipeline.stages);
}

std::optional<std::int64_t> memory_for_cache(const RunCheckpoint& source, cli::Place place) {
  const std::int64_t available = place == cli::Place::hosts ? 0 : available_on(device_for(source));
  if (available == 0) return std::nullopt;
  // A model that does not fit is streamed in what it may take.
  const std::int64_t weights = std::min(weight_bytes(source), memory_for_weights(available));
  return static_cast<std::int64_t>(kShare * static_cast<double>(available - weights));
}

base::ExitCode ask_model(const std::filesystem::path& run, const RunCheckpoint& source,
                         cli::Place place, run::InferenceClient& client) {
  if (place == cli::Place::hosts) return ask_hosts(run, source, client);
  worker::answer_here(*load_whole_model(source), client);
  return base::ExitCode::done;
}

}  // namespace strait::compute
