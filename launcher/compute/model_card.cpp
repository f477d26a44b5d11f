#include "launcher/compute/model_card.h"

#include <fstream>

#include "framework/store/checkpoint.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/compute/prepared_run.h"
#include "launcher/planner/planned_model.h"
#include "models/peft_settings.h"

namespace strait::compute {
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

// Six digits: more are noise. A loss that is not finite is null.
std::string loss_text(const nlohmann::json& loss) {
  return loss.is_number() ? fmt::format("{:.6g}", loss.get<double>()) : loss.dump();
}

// Characters that mean nothing else in YAML.
bool is_plain_yaml(const std::string& value) {
  return !value.empty() && value.front() != '-' && std::ranges::all_of(value, [](char c) {
    return base::is_ascii_alphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '/' ||
           c == ':';
  }) && !value.ends_with(':');
}

// The licence, by the head of the README.md that the model came with: lines for the head of this
// one. Empty: it does not say.
std::string license_lines(const fs::path& model) {
  constexpr std::array kKeys = {"license", "license_name", "license_link"};
  std::ifstream readme(model / "README.md");
  std::string lines;
  std::string line;
  if (!std::getline(readme, line) || !line.starts_with("---")) return "";
  while (std::getline(readme, line) && !line.starts_with("---")) {
    const std::size_t colon = line.find(": ");
    const bool known =
        colon != line.npos && std::ranges::find(kKeys, line.substr(0, colon)) != kKeys.end();
    if (!known) continue;
    const std::size_t end = line.find_last_not_of(" \r");
    const std::string value = line.substr(colon + 2, end - colon - 1);
    if (is_plain_yaml(value)) lines += fmt::format("{}: {}\n", line.substr(0, colon), value);
  }
  return lines;
}

// https://huggingface.co/docs/hub/model-cards: what the hub shows and searches for.
std::string card_head(const plan::Plan& plan, bool adapter) {
  const recipe::Recipe::Model& model = plan.recipe.model;
  const auto base = model.weights == recipe::Weights::load
                        ? planner::model_hub_name(model.path, plan.model_config)
                        : std::nullopt;  // it has given its form alone
  std::string head = "---\n";
  if (base) head += fmt::format("base_model: {}\n", *base);
  head += fmt::format("library_name: {}\n", adapter ? "peft" : "transformers");
  if (model.weights == recipe::Weights::load) head += license_lines(model.path);
  head += "pipeline_tag: text-generation\ntags:\n";
  if (base) head += fmt::format("- base_model:{}:{}\n", adapter ? "adapter" : "finetune", *base);
  return head + (adapter ? "- lora\n" : "") + "- strait\n- text-generation\n---\n\n";
}

// Also of a path that ends in a slash.
std::string last_part(const fs::path& path) {
  return (path / "").parent_path().filename().string();
}

// The recipe as others may read it: hosts are of no use to them, and their variables may be
// secrets; of a path only the last part is of use.
recipe::Recipe shown_recipe(const plan::Plan& plan) {
  recipe::Recipe shown = plan.recipe;
  shown.hosts = {};
  for (std::string* path : paths_in(shown)) *path = last_part(*path);
  shown.model.path = base_name(plan);
  const fs::path from = plan.recipe.model.weights_run;
  if (from.empty()) return shown;
  const fs::path folder = from.parent_path();
  const bool of_run = folder.filename() == store::kCheckpointsFolder;
  shown.model.weights_run =
      (fs::path("runs") /
       (of_run ? folder.parent_path().filename() / store::kCheckpointsFolder : "") /
       from.filename())
          .string();
  return shown;
}

}  // namespace

std::string base_name(const plan::Plan& plan) {
  const std::string& path = plan.recipe.model.path;
  return planner::model_hub_name(path, plan.model_config).value_or(last_part(path));
}

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

std::string model_card(const RunCheckpoint& source, const fs::path& run, bool adapter) {
  const plan::Plan& plan = source.run.plan;
  std::string card =
      card_head(plan, adapter) +
      fmt::format(
          "# {}\n\nFine-tuned with strait from `{}` ({}).\n\n"
          "| | |\n|---|---|\n| steps | {} of {} |\n| training data | {} of {} tokens, xxh3 {} "
          "|\n",
          plan.recipe.name, base_name(plan), weights_text(plan.recipe.model), number(source.step),
          plan.steps, base::counted(plan.train.rows, "row"), plan.recipe.data.row, plan.train.hash);
  const nlohmann::json trained = last_line_of(run / base::kMetricsFile, source.step, false,
                                              [](const nlohmann::json&) { return true; });
  if (!trained.is_null()) {
    card += fmt::format("| training loss of the last step | {} |\n", loss_text(trained["loss"]));
  }
  const nlohmann::json evaluated =
      last_line_of(run / base::kEventsFile, source.step, true, [](const nlohmann::json& fields) {
        return fields.contains("event") && fields["event"] == "evaluated";
      });
  if (!evaluated.is_null()) {
    card += fmt::format("| evaluation loss at step {} | {} |\n", evaluated["step"].dump(),
                        loss_text(evaluated["loss"]));
  }
  if (const std::string unread = adapter ? models::unread_by_peft(source.config) : "";
      !unread.empty()) {
    card += fmt::format("\nFor strait alone: PEFT over transformers 5 {}.\n", unread);
  }
  return card + "\nThe recipe:\n\n```toml\n" + recipe::recipe_to_toml(shown_recipe(plan)) + "```\n";
}

}  // namespace strait::compute
