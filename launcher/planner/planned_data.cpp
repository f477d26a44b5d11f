#include "launcher/planner/planned_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/store/sample_order.h"
#include "launcher/base/errors.h"
#include "launcher/planner/data_preparation.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

// A recipe that names a tokenizer, and data that another one made, is a mistake; so are two data
// files of different ones.
void check_tokenizer(const PreparedData& data, const std::string& expected,
                     const std::string& whose) {
  if (data.tokenizer.empty() || expected.empty() || data.tokenizer == expected) return;
  throw base::UserError(
      base::ExitCode::mismatch,
      fmt::format("{} was made by another tokenizer ({}) than {} ({}); prepare it again",
                  data.name(), data.tokenizer, whose, expected));
}

void check_data(const recipe::Recipe& recipe, const models::ModelDescription& model,
                const PreparedData& data) {
  if (data.tokens->largest_token() >= model.vocabulary) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("{} has token {}, but the model of {} has tokens 0 to {} "
                                      "(byte tokens need a vocabulary of 257)",
                                      data.name(), data.tokens->largest_token(), recipe.model.path,
                                      model.vocabulary - 1));
  }
  if (recipe.data.row > model.positions) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("data.row is {}, but the model of {} has {} positions; "
                                      "set data.row to that or less",
                                      recipe.data.row, recipe.model.path, model.positions));
  }
}

void check_data_files(const char* key, const std::vector<recipe::DataFile>& files) {
  for (const recipe::DataFile& file : files) {
    std::error_code none;
    if (fs::exists(file.path, none)) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("{} = \"{}\" is no file here ({})", key, file.path,
                                      fs::current_path().string()));
  }
}

void count_steps(plan::Plan& plan, const PreparedData& train) {
  const recipe::Recipe& recipe = plan.recipe;
  const std::int64_t micro_batch = recipe.train.micro_batch.value_or(1);
  const std::int64_t rows = micro_batch * recipe.pipeline.replicas;
  if (recipe.train.batch % rows != 0) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("train.batch = {} is not a multiple of train.micro_batch = {}{}",
                    recipe.train.batch, micro_batch,
                    recipe.pipeline.replicas == 1 ? "" : " times pipeline.replicas"));
  }
  const store::SampleOrder order(
      store::SampleOrderOptions{.seed = static_cast<std::uint64_t>(recipe.seed),
                                .rows = train.tokens->rows(),
                                .replicas = recipe.pipeline.replicas,
                                .replica = recipe.pipeline.replicas - 1,
                                .rows_per_step = recipe.train.batch / recipe.pipeline.replicas,
                                .shuffle = recipe.data.shuffle});
  plan.epoch_steps = order.epoch_steps(1);
  plan.steps = recipe.train.steps ? *recipe.train.steps : order.epoch_steps(*recipe.train.epochs);
}

plan::Plan::Data plan_data(const PreparedData& data) {
  return {data.is_token_file ? fs::absolute(data.files.front().path).string() : "",
          data.tokens->hash(), data.tokens->rows()};
}

}  // namespace

void read_data_sets(PlannedRun& run, const recipe::Recipe& recipe,
                    const models::ModelDescription& model) {
  check_data_files("data.train", recipe.data.train);
  check_data_files("data.eval", recipe.data.eval);
  DataOptions options = data_options(recipe);
  options.hold_out = recipe.data.hold_out;
  PreparedSplit split = read_split(recipe.data.train, options);
  run.train = std::move(split.training);
  const bool token_files_only = std::ranges::all_of(
      run.train.files, [](const recipe::DataFile& file) { return is_token_file(file.path); });
  if (token_files_only && !recipe.data.tokenizer.empty()) {
    check_tokenizer(run.train, tokenizer_identity(recipe.data.tokenizer), "data.tokenizer");
  }
  check_data(recipe, model, run.train);
  run.plan.train = plan_data(run.train);
  count_steps(run.plan, run.train);
  run.eval = std::move(split.held_out);
  if (!recipe.data.eval.empty()) run.eval = read_data(recipe.data.eval, options);
  if (!run.eval) return;
  check_tokenizer(*run.eval, run.train.tokenizer, "data.train");
  check_data(recipe, model, *run.eval);
  run.plan.eval = plan_data(*run.eval);
}

}  // namespace strait::planner
