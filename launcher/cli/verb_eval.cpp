#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/data/data_preparation.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/ask_model.h"
#include "launcher/cli/evaluation.h"
#include "launcher/cli/text_coder.h"
#include "launcher/cli/verbs.h"
#include "launcher/planner/planned_data.h"
#include "launcher/planner/planned_model.h"
#include "launcher/tokenizer/tokenizer_worker.h"
#include "models/model_description.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

// What to do about a record that is longer than a row, if the run's recipe does not say: eval has
// no flag for such records, prepare has.
std::string remedy_for_long_records(const fs::path& run, const fs::path& source,
                                    const data::DataOptions& options) {
  return fmt::format(
      "to evaluate the others: {} --too-long drop out.safetensors && {} --data "
      "out.safetensors",
      planner::prepare_command(source.string(), options), base::strait_command("eval", run));
}

// The data to evaluate, made as the run's training data were: the user's file, or the run's own.
data::PreparedData evaluation_data(const fs::path& directory, const plan::RunFile& run,
                                   const std::string& chosen_file, const std::string& chosen) {
  const fs::path source = !chosen_file.empty() ? fs::path(chosen_file)
                          : run.plan.eval      ? fs::path(run.plan.eval->file)
                                               : fs::path();
  if (source.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run's recipe has no data.eval; name a file with --data FILE");
  }
  data::DataOptions options = planner::data_options(run.plan.recipe);
  options.evaluation = true;
  if (source.extension() != ".safetensors") options.tokenizer = tokenizer_of_run(run, chosen);
  options.rows.remedy = remedy_for_long_records(directory, source, options);
  data::PreparedData data =
      data::read_data({{source.string()}}, options, tokenizer::PythonTokenizers());
  const std::string made_by = data_tokenizer(run);
  if (!data.tokenizer.empty() && !made_by.empty() && data.tokenizer != made_by) {
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("{} was made by another tokenizer or chat template ({}) than the run's data "
                    "({}); prepare it with the run's",
                    source.string(), data.tokenizer, made_by));
  }
  for (const std::string& note : data.notes) warn(note);
  const recipe::Recipe& recipe = run.plan.recipe;
  planner::check_tokens(recipe,
                        models::describe(planner::planned_model(run.plan),
                                         {recipe.data.row, planner::value_bytes(recipe.model)}),
                        data);
  if (chosen_file.empty() && run.plan.eval) {
    plan::check_same_rows(*run.plan.eval, data.tokens->hash(), "began",
                          "name a file with --data FILE");
  }
  return data;
}

struct EvalFlags {
  fs::path run;
  std::string data;  // empty: the recipe's data.eval
  std::string tokenizer;
  bool json = false;
  Place place = Place::automatic;
};

base::ExitCode evaluate(const EvalFlags& flags) {
  const data::PreparedData data =
      evaluation_data(flags.run, read_run(flags.run), flags.data, flags.tokenizer);
  // Not before the data is read: a live run removes checkpoints.
  const RunCheckpoint source = find_checkpoint(flags.run);
  warn(source.warning);
  const plan::Plan& plan = source.run.plan;
  const Place place = choose_place(source, flags.place);
  Evaluation evaluation(data.tokens, plan.micro_batch_rows(), requests_in_flight(source, place));
  const base::ExitCode code = ask_model(flags.run, source, place, evaluation);
  if (code != base::ExitCode::done) return code;
  const double loss = evaluation.loss();
  if (flags.json) {
    std::cout << nlohmann::json{{"step", number(source.step)},
                                {"loss", loss},
                                {"target_tokens", evaluation.target_tokens()}}
              << '\n';
  } else {
    std::cout << fmt::format(
        "step {}: loss {:.6f}, perplexity {:.4f} over {} target tokens of {}\n",
        number(source.step), loss, std::exp(loss), evaluation.target_tokens(), data.name());
  }
  return base::ExitCode::done;
}

}  // namespace

void add_eval(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = cli.add_subcommand("eval", "the loss of a trained model");
  add_run_argument(verb, flags->run)->required();
  verb->add_option("--data", flags->data, "instead of the recipe's data.eval");
  verb->add_option("--tokenizer", flags->tokenizer, "a directory, or bytes; else the run's own");
  verb->add_flag("--json", flags->json, "machine-readable output");
  add_place(verb, flags->place);
  verb->callback([flags, &command] { command = [flags] { return evaluate(*flags); }; });
}

}  // namespace strait::cli
