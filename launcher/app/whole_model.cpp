#include "launcher/app/whole_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "launcher/base/errors.h"
#include "launcher/plugin/plugin_file.h"

namespace strait::app {

WholeModel load_whole_model(const std::filesystem::path& run_directory) {
  WholeModel whole;
  whole.run = plan::read_run_file(run_directory / "plan.json", plugin::load_plugins);
  const auto newest = store::choose_checkpoint(run_directory);
  if (!newest) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} has no complete checkpoint yet; let the run reach one "
                    "(checkpoint.every = {} steps) or stop it with: strait stop {}",
                    run_directory.string(), whole.run.plan.recipe.checkpoint.every,
                    run_directory.string()));
  }
  whole.checkpoint = newest->checkpoint.path;
  whole.warning = newest->warning;
  whole.step = newest->checkpoint.manifest.step;
  // As many threads as a stage had, so that sums have the same bits as in the run. More would also
  // be slower: a token of a small model is less work than waking them.
  at::set_num_threads(static_cast<int>(whole.run.plan.processes.front().threads));
  const std::string& path = whole.run.plan.recipe.model.path;
  whole.config = models::parse_config(whole.run.plan.model_config, path + "/config.json");
  const auto layers = static_cast<int>(models::describe(whole.config).layers.size());
  whole.model = models::make_model(whole.config, {0, layers - 1}, at::kFloat, at::kCPU);
  const tensors::CheckpointReader reader(whole.checkpoint, store::Verify::sizes);
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : whole.model->parameters()) {
    if (parameter.owned) parameter.value.detach().copy_(reader.read(parameter.name));
  }
  return whole;
}

}  // namespace strait::app
