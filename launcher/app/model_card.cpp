#include "launcher/app/model_card.h"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/store/checkpoint.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/control/run_file_names.h"
#include "launcher/plan/run_files.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

// The last line of a file with a loss that is `wanted`, of this step or, with `earlier`, also of
// one before it. Null: none.
nlohmann::json last_line_of(const fs::path& file, store::Step step, bool earlier,
                            const std::function<bool(const nlohmann::json&)>& wanted) {
  std::ifstream lines(file);
  nlohmann::json found;
  for (std::string line; std::getline(lines, line);) {
    auto fields = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!fields.is_object() || !fields.contains("step") || !fields.contains("loss")) continue;
    if (!fields["step"].is_number_integer() || !wanted(fields)) continue;
    const auto of = fields["step"].get<std::int64_t>();
    if (of == number(step) || (earlier && of < number(step))) found = std::move(fields);
  }
  return found;
}

}  // namespace

std::string weights_text(const recipe::Recipe::Model& model) {
  if (model.weights == recipe::Weights::random) return "random weights";
  if (model.weights == recipe::Weights::load) return "its weights";
  fs::path run = model.weights_run;
  if (run.parent_path().filename() == plan::kBaseFolder) {
    try {
      const auto notes = store::open_checkpoint(run, store::Verify::manifest).notes;
      if (const auto source = notes.find(plan::kSourceNote); source != notes.end()) {
        run = source->second;
      }
    } catch (const store::StoreError&) {
      // An adapter is exported without its base, so its folder will do.
    }
  }
  const std::string step = run.filename().string();
  if (!step.starts_with(store::kStepPrefix)) return fmt::format("weights of the run `{}`", step);
  run = run.parent_path();
  if (run.filename() == store::kCheckpointsFolder) run = run.parent_path();
  return fmt::format("weights of the run `{}`, {}", run.filename().string(), step);
}

std::string model_card(const RunCheckpoint& source, const fs::path& run) {
  const plan::Plan& plan = source.run.plan;
  std::string card = fmt::format(
      "# {}\n\nFine-tuned with strait from `{}` ({}).\n\n"
      "| | |\n|---|---|\n| steps | {} of {} |\n| training data | {} rows of {} tokens, xxh3 {} |\n",
      plan.recipe.name, fs::path(plan.recipe.model.path).filename().string(),
      weights_text(plan.recipe.model), number(source.step), plan.steps, plan.train.rows,
      plan.recipe.data.row, plan.train.hash);
  const nlohmann::json trained = last_line_of(run / control::kMetricsFile, source.step, false,
                                              [](const nlohmann::json&) { return true; });
  if (!trained.is_null()) {
    card += fmt::format("| training loss of the last step | {} |\n", trained["loss"].dump());
  }
  const nlohmann::json evaluated =
      last_line_of(run / control::kEventsFile, source.step, true, [](const nlohmann::json& fields) {
        return fields.contains("event") && fields["event"] == "evaluated";
      });
  if (!evaluated.is_null()) {
    card += fmt::format("| evaluation loss at step {} | {} |\n", evaluated["step"].dump(),
                        evaluated["loss"].dump());
  }
  // Hosts are of no use to others, and their variables may be secrets.
  recipe::Recipe shown = plan.recipe;
  shown.hosts = {};
  return card + "\nThe recipe:\n\n```toml\n" + recipe::recipe_to_toml(shown) + "```\n";
}

}  // namespace strait::app
