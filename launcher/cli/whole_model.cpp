#include "launcher/cli/whole_model.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/memory.h"
#include "launcher/base/text.h"
#include "launcher/cli/run_options.h"
#include "launcher/planner/checkpoint_weights.h"
#include "launcher/planner/planned_model.h"
#include "launcher/run/run_directory.h"
#include "launcher/worker/compute_device.h"
#include "models/model.h"

namespace strait::cli {

namespace {

bool weights_are_here(const std::filesystem::path& run) {
  return !store::list_checkpoints(run, store::Verify::sizes, store::Part::weights).complete.empty();
}

bool fits(const RunCheckpoint& source, std::int64_t available) {
  constexpr double kShare = 0.8;  // the rest is for keys, values and what a layer computes
  std::int64_t bytes = 0;
  for (const models::LayerCost& layer : models::describe(source.config).layers) {
    bytes += (layer.parameters - layer.quantized.parameters) * 4 + layer.quantized.bytes;
  }
  return available == 0 || static_cast<double>(bytes) <= kShare * static_cast<double>(available);
}

// A GPU of this machine with room for the model, unless the recipe wants none.
at::Device device_for(const RunCheckpoint& source) {
  const bool none = source.run.plan.recipe.model.device == recipe::Device::cpu;
  const at::Device device =
      worker::choose_device(none ? recipe::Device::cpu : recipe::Device::automatic,
                            worker::accelerators_here(), 0, "this machine");
  if (!device.is_cuda()) return device;
  const std::size_t available = at::accelerator::getMemoryInfo(device.index()).first;
  return fits(source, static_cast<std::int64_t>(std::max<std::size_t>(available, 1)))
             ? device
             : at::Device(at::kCPU);
}

}  // namespace

RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory) {
  RunCheckpoint whole;
  whole.run = read_run(run_directory);
  const recipe::Recipe::Checkpoint& settings = whole.run.plan.recipe.checkpoint;
  if (settings.home == recipe::CheckpointHome::none && !weights_are_here(run_directory)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the weights of {} stay on its hosts (checkpoint.home = \"none\"); fetch them "
                    "with: {}",
                    run_directory.string(), base::strait_command("resume", run_directory)));
  }
  const auto newest = store::choose_checkpoint(run_directory, store::Part::weights);
  const bool has_ended = !run::RunDirectory::live(run_directory);
  if (!newest && has_ended) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no complete checkpoint, and the run has ended; begin again with: {}",
                    run_directory.string(), run::run_again_command(run_directory)));
  }
  if (!newest) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no complete checkpoint yet; let the run reach one "
                    "(checkpoint.every = {}) or stop it with: {}",
                    run_directory.string(), whole.run.plan.recipe.checkpoint.every,
                    base::strait_command("stop", run_directory)));
  }
  whole.checkpoint = newest->checkpoint.path;
  // A live run is writing its next checkpoint, and no sentence is due to that.
  const bool damaged = !newest->damage.empty();
  if (has_ended || damaged) whole.warning = newest->warning;
  whole.step = newest->checkpoint.manifest.step;
  whole.config = planner::planned_model(whole.run.plan);
  return whole;
}

bool fits_here(const RunCheckpoint& source) { return fits(source, base::host_memory().available); }

std::unique_ptr<worker::ModelPart> load_whole_model(const RunCheckpoint& source) {
  // As many threads as a stage had, so that sums have the same bits as in the run. More would also
  // be slower: a token of a small model is less work than waking them.
  at::set_num_threads(static_cast<int>(source.run.plan.processes.front().threads));
  const at::Device device = device_for(source);
  const auto layers = static_cast<int>(models::describe(source.config).layers.size());
  auto model = models::make_model(source.config, {0, layers - 1}, at::kFloat, device);
  const planner::CheckpointWeights weights(source.run.plan.recipe, source.config,
                                           source.checkpoint);
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : model->parameters()) {
    if (parameter.owned) models::assign(parameter, weights.read(parameter.name));
  }
  return std::make_unique<worker::ModelPart>(std::move(model), device);
}

}  // namespace strait::cli
