#include "launcher/app/verb_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "framework/store/atomic_file.h"
#include "framework/tensors/safetensors_writer.h"
#include "framework/tensors/weight_files.h"
#include "framework/sync/layout.h"
#include "launcher/base/printable_text.h"
#include "launcher/planner/data_preparation.h"
#include "launcher/app/text_generator.h"
#include "launcher/app/whole_model.h"
#include "launcher/base/user_error.h"
#include "models/tensor_names.h"
#include "stages/batch_source.h"
#include "stages/batch_upstream.h"
#include "stages/chunk.h"
#include "stages/gradients.h"
#include "stages/loss_downstream.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

void warn(const WholeModel& whole) {
  if (!whole.warning.empty()) std::cerr << "strait: " << whole.warning << '\n';
}

// The names that the tensors of the original model have in its files; the canonical ones where the
// run began with random weights.
std::map<std::string, std::string> original_names(const WholeModel& whole) {
  if (whole.run.plan.recipe.model.weights == recipe::Weights::random) return {};
  const std::string& path = whole.run.plan.recipe.model.path;
  std::vector<models::TensorShape> shapes;
  const tensors::WeightFiles files(path);
  for (const auto& entry : files.tensors()) shapes.push_back({entry.info.name, entry.info.shape});
  return models::match_tensors(whole.config, shapes, path);
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
                           "special_tokens_map.json", "generation_config.json"}) {
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name);
  }
}

}  // namespace

base::ExitCode generate(const GenerateWords& words) {
  WholeModel whole = load_whole_model(words.run);
  warn(whole);
  GenerationOptions options;
  options.most_tokens = words.most_tokens;
  options.temperature = words.temperature;
  options.top_k = words.top_k;
  options.seed = words.seed;
  const std::string answer =
      generate_text(*whole.model, models::describe(whole.config).positions, words.prompt, options);
  // A program gets the model's own bytes; on a terminal they must not act.
  const bool watched = isatty(STDOUT_FILENO) != 0;
  std::cout << (watched ? base::printable_lines(answer) : answer)
            << (answer.empty() || answer.back() != '\n' ? "\n" : "");
  return base::ExitCode::done;
}

base::ExitCode evaluate(const fs::path& run, const fs::path& data, bool json) {
  WholeModel whole = load_whole_model(run);
  warn(whole);
  const recipe::Recipe& recipe = whole.run.plan.recipe;
  const fs::path source = !data.empty()         ? data
                          : whole.run.plan.eval ? fs::path(whole.run.plan.eval->file)
                                                : fs::path();
  if (source.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                    "the run's recipe has no data.eval; say what to evaluate on with --data FILE");
  }
  const planner::PreparedData prepared = planner::read_data(source, recipe.data.row);
  stages::BatchOptions batch;
  batch.micro_batch_rows = *recipe.train.micro_batch;
  const stages::BatchSource rows(nullptr, prepared.tokens, batch);
  stages::BatchUpstream upstream(rows, {});
  stages::Gradients no_gradients({}, sync::Layout({}));
  stages::LossDownstream downstream(*whole.model->head(), no_gradients, rows);
  stages::Chunk chunk(*whole.model, {});
  const stages::Phase phase{whole.step, false};
  const std::int64_t per_batch = batch.micro_batch_rows;
  const std::int64_t batches = (prepared.tokens->rows() + per_batch - 1) / per_batch;
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto micro_batch = static_cast<MicroBatch>(i);
    downstream.give(phase, micro_batch,
                    chunk.forward(phase, micro_batch, upstream.take(phase, micro_batch)));
  }
  const stages::StepReport report = downstream.collect(phase);
  if (json) {
    std::cout << nlohmann::json{{"step", number(whole.step)},
                                {"loss", report.loss},
                                {"target_tokens", report.target_tokens}}
              << '\n';
  } else {
    std::cout << fmt::format(
        "step {}: loss {:.6f}, perplexity {:.4f} over {} target tokens of {}\n", number(whole.step),
        report.loss, std::exp(report.loss), report.target_tokens, source.string());
  }
  return base::ExitCode::done;
}

base::ExitCode export_model(const fs::path& run, const fs::path& directory) {
  if (fs::exists(directory) && !(fs::is_directory(directory) && fs::is_empty(directory))) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("{} exists already; export into a new directory", directory.string()));
  }
  const WholeModel whole = load_whole_model(run);
  warn(whole);
  const auto names = original_names(whole);
  std::vector<tensors::NamedTensor> tensors;
  for (const models::Parameter& parameter : whole.model->parameters()) {
    if (!parameter.owned) continue;
    const auto original = names.find(parameter.name);
    tensors.push_back(
        {original == names.end() ? parameter.name : original->second, parameter.value.detach()});
  }
  store::make_directory(directory);
  tensors::write_safetensors(directory / "model.safetensors", tensors);
  store::replace_file(directory / "config.json", whole.run.plan.model_config);
  copy_tokenizer(whole.run.plan.recipe.model.path, directory);
  std::cout << fmt::format("{} tensors of step {} are in {}\n", tensors.size(), number(whole.step),
                           directory.string());
  return base::ExitCode::done;
}

base::ExitCode prepare(const fs::path& data, const fs::path& file, std::int64_t row) {
  const planner::PreparedData prepared = planner::read_data(data, row);
  if (prepared.is_token_file) {
    throw base::UserError(base::ExitCode::bad_input, data.string() + " is a token file already");
  }
  planner::place_data(prepared, file);
  std::cout << fmt::format("{}: {} rows of {} tokens\n", file.string(), prepared.tokens->rows(),
                           row);
  return base::ExitCode::done;
}

}  // namespace strait::app
