#include "launcher/planner/planned_data.h"

#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

// Refuses data that another tokenizer made than the one that the recipe names, and two data files
// of different tokenizers.
void check_tokenizer(const data::PreparedData& data, const std::string& expected,
                     const std::string& source) {
  if (data.tokenizer.empty() || expected.empty() || data.tokenizer == expected) return;
  throw base::UserError(
      base::ExitCode::mismatch,
      "{} was made by another tokenizer or chat template ({}) than {} ({}); prepare it again",
      data.name(), data.tokenizer, source, expected);
}

// For token files without data.tokenizer, whose tokens should come from the model's own tokenizer.
void compare_with_model(data::PreparedData& data, const recipe::Recipe& recipe) {
  const std::string& model = recipe.model.path;
  if (data.tokenizer.empty() || !tokenizer::has_tokenizer(model)) return;
  if (data.tokenizer == data::kByteTokenizer) {
    throw base::UserError(
        base::ExitCode::mismatch,
        "{} has byte tokens, but the model of {} has another tokenizer, its own; prepare it again "
        "with --model {}, or confirm it with data.tokenizer = \"bytes\"",
        data.name(), model, base::shell_word(model));
  }
  std::string own;
  try {
    own = data::tokenizer_identity(model, tokenizers_of(recipe));
  } catch (const store::StoreError&) {
    return;  // in a form that this build cannot read, so nothing is compared
  }
  if (data.tokenizer == own) return;
  data.notes.push_back(
      fmt::format("{} was made by another tokenizer or chat template ({}) than that of {} is now "
                  "({}); prepare it again unless that is meant",
                  data.name(), data.tokenizer, model, own));
}

// Called before data is read, which may take long.
void check_row(const recipe::Recipe& recipe, const models::ModelDescription& model) {
  if (recipe.data.row <= model.positions) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      "data.row is {}, but the model of {} takes rows of up to {} tokens (its positions, or those "
      "before its rotation is scaled by a row's length); set data.row to that or less",
      recipe.data.row, recipe.model.path, model.positions);
}

void check_data_files(const char* key, const std::vector<data::DataFile>& files) {
  for (const data::DataFile& file : files) {
    std::error_code error;
    // A file that this user may not access is refused when it is opened.
    if (fs::exists(file.path, error) || error == std::errc::permission_denied) continue;
    const bool may_be_hubs = base::hub_name(file.path) && !fs::path(file.path).has_extension();
    throw base::UserError(
        base::ExitCode::bad_input, "{} = \"{}\" is not a file here ({}){}{}", key, file.path,
        fs::current_path().string(),
        may_be_hubs ? "; it must name one of a data set's files, and " : "",
        may_be_hubs ? base::download_advice(file.path, "--repo-type dataset") : "");
  }
}

// data::SampleOrder refuses this too, but it does not know the key and the files.
void check_batch_rows(const recipe::Recipe& recipe, const data::PreparedData& train) {
  const std::int64_t replicas = recipe.pipeline.replicas;
  const std::int64_t rows = train.tokens->rows();
  if (recipe.train.batch <= rows) return;
  const std::string parts =
      replicas == 1 ? "" : fmt::format(", {} for each of {} replicas", rows / replicas, replicas);
  throw base::UserError(base::ExitCode::bad_input,
                        "train.batch is {} ({}), but {} has {} row{} of {} tokens{}; make "
                        "train.batch or data.row smaller, or give more data",
                        recipe.train.batch, recipe.origins.of("train.batch"), train.name(), rows,
                        rows == 1 ? "" : "s", recipe.data.row, parts);
}

plan::Plan::Data plan_data(const data::PreparedData& data) {
  return {data.is_token_file ? fs::absolute(data.files.front().path).string() : "",
          data.tokens->hash(), data.tokens->rows()};
}

data::DataFile own_file(const plan::Plan::Data& data) {
  if (store::is_present(data.file)) return {data.file};
  throw base::UserError(base::ExitCode::mismatch,
                        "{}, from which the run reads its rows, is missing; put it back, or start "
                        "a run of another name",
                        data.file);
}

// What rows are made of. A resumed run uses its own token files, because the sources may have moved
// or changed since it began. Their tokens are final, so no tokenizer is needed.
recipe::Recipe::Data sources_of(const recipe::Recipe& recipe, const plan::Plan* before) {
  recipe::Recipe::Data data = recipe.data;
  if (before == nullptr) {
    data.train = data::expanded_files(data.train, /*evaluation=*/false);
    data.eval = data::expanded_files(data.eval, /*evaluation=*/true);
    check_data_files("data.train", data.train);
    check_data_files("data.eval", data.eval);
    return data;
  }
  data.train = {own_file(before->train)};
  data.eval.clear();
  if (before->eval) data.eval.push_back(own_file(*before->eval));
  data.hold_out = 0;
  return data;
}

void check_made_by(data::PreparedData& data, const recipe::Recipe& recipe) {
  const bool token_files_only = std::ranges::all_of(
      data.files, [](const data::DataFile& file) { return data::is_token_file(file.path); });
  if (!token_files_only) return;
  if (recipe.data.tokenizer.empty()) return compare_with_model(data, recipe);
  check_tokenizer(data, data::tokenizer_identity(recipe.data.tokenizer, tokenizers_of(recipe)),
                  "data.tokenizer");
}

}  // namespace

void count_steps(plan::Plan& plan, const data::PreparedData& train) {
  const recipe::Recipe& recipe = plan.recipe;
  const std::int64_t micro_batch = recipe.train.micro_batch.value_or(1);
  const std::int64_t rows = micro_batch * recipe.pipeline.replicas;
  std::vector<std::int64_t> by_replica = plan.replica_rows;
  if (by_replica.empty() && recipe.pipeline.rows) by_replica = *recipe.pipeline.rows;
  if (by_replica.empty() && recipe.train.batch % rows != 0) {
    throw base::UserError(base::ExitCode::bad_input,
                          "train.batch = {} is not a multiple of train.micro_batch = {}{}",
                          recipe.train.batch, micro_batch,
                          recipe.pipeline.replicas == 1 ? "" : " times pipeline.replicas");
  }
  check_batch_rows(recipe, train);
  const data::SampleOrder order(
      data::SampleOrderOptions{.seed = static_cast<std::uint64_t>(recipe.seed),
                               .rows = train.tokens->rows(),
                               .replicas = recipe.pipeline.replicas,
                               .replica = recipe.pipeline.replicas - 1,
                               .rows_per_step = recipe.train.batch / recipe.pipeline.replicas,
                               .rows_by_replica = std::move(by_replica),
                               .shuffle = recipe.data.shuffle});
  plan.epoch_steps = order.epoch_steps(1);
  plan.steps = recipe.train.steps ? *recipe.train.steps : order.epoch_steps(*recipe.train.epochs);
}

std::string tokenizer_of(const recipe::Recipe& recipe) {
  if (!recipe.data.tokenizer.empty()) return recipe.data.tokenizer;
  return tokenizer::has_tokenizer(recipe.model.path) ? recipe.model.path : data::kByteTokenizer;
}

tokenizer::PythonTokenizers tokenizers_of(const recipe::Recipe& recipe) {
  if (recipe.data.chat_template == recipe::ChatTemplate::own) return tokenizer::PythonTokenizers();
  return tokenizer::PythonTokenizers(std::string(recipe::name_of(recipe.data.chat_template)));
}

data::DataOptions data_options(const recipe::Recipe& recipe) {
  const recipe::Recipe::Data& data = recipe.data;
  const bool preferences = recipe.train.preference.loss != recipe::PreferenceKind::none;
  return {{data.row, data.too_long, data.packing, data.overlap},
          tokenizer_of(recipe),
          preferences ? data::Targets::last : data.targets,
          0,
          static_cast<std::uint64_t>(recipe.seed),
          /*evaluation=*/false,
          preferences,
          recipe.train.preference.loss == recipe::PreferenceKind::kto};
}

std::string prepare_command(const std::string& source, const data::DataOptions& options) {
  std::string command = base::strait_command("prepare", source);
  command += fmt::format(" --row {}", options.rows.row);
  if (options.tokenizer != data::kByteTokenizer) {
    command += " --model " + base::shell_word(options.tokenizer);
  }
  if (options.targets != data::Targets::assistant) {
    command += fmt::format(" --targets {}", recipe::name_of(options.targets));
  }
  return command;
}

void check_tokens(const recipe::Recipe& recipe, const models::ModelDescription& model,
                  const data::PreparedData& data) {
  const data::TokenFile& rows = *data.tokens;
  if (rows.largest_token() >= model.vocabulary) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has token {}, but the model of {} has tokens 0 to {} (byte tokens "
                          "need a vocabulary of 257)",
                          data.name(), rows.largest_token(), recipe.model.path,
                          model.vocabulary - 1);
  }
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    if (!rows.targets(store::SampleId{row}).empty()) return;
  }
  const std::string& first = data.files.front().path;
  const std::string look =
      data::is_token_file(first)
          ? "look at its loss_mask"
          : "look at it with: " + prepare_command(first, data_options(recipe)) + " --show 3";
  throw base::UserError(base::ExitCode::bad_input,
                        "{} has no target: none of its tokens is to be predicted, so there is "
                        "nothing to learn or to evaluate; {}",
                        data.name(), look);
}

std::string long_warmup_note(const plan::Plan& plan) {
  const recipe::Recipe::Train& settings = plan.recipe.train;
  if (settings.warmup == 0 || settings.warmup < plan.steps) return "";
  const double share = static_cast<double>(plan.steps) / static_cast<double>(settings.warmup);
  return fmt::format(
      "train.warmup is {}, and the run has {}: the learning rate only rises, to {:.3g} in the last "
      "step, of train.learning_rate = {:.3g}; make train.warmup smaller",
      base::counted(settings.warmup, "step"), plan.steps, settings.learning_rate * share,
      settings.learning_rate);
}

void read_data_sets(PlannedRun& run, const recipe::Recipe& recipe,
                    const models::ModelDescription& model, const plan::Plan* before) {
  const recipe::Recipe::Data sources = sources_of(recipe, before);
  check_row(recipe, model);
  data::DataOptions options = data_options(recipe);
  if (options.tokenizer == data::kByteTokenizer &&
      recipe.data.chat_template != recipe::ChatTemplate::own) {
    throw base::UserError(base::ExitCode::bad_input,
                          "data.chat_template is \"{}\", but the tokens are bytes, which render "
                          "messages without a template; name a tokenizer with data.tokenizer, or "
                          "leave data.chat_template out",
                          recipe::name_of(recipe.data.chat_template));
  }
  options.hold_out = sources.hold_out;
  data::PreparedSplit split = data::read_split(sources.train, options, tokenizers_of(recipe));
  run.train = std::move(split.training);
  if (before == nullptr) check_made_by(run.train, recipe);
  check_tokens(recipe, model, run.train);
  run.plan.train = plan_data(run.train);
  count_steps(run.plan, run.train);
  if (auto note = long_warmup_note(run.plan); !note.empty()) {
    run.train.notes.push_back(std::move(note));
  }
  run.eval = std::move(split.held_out);
  if (!sources.eval.empty()) {
    options.evaluation = true;
    run.eval = data::read_data(sources.eval, options, tokenizers_of(recipe));
  }
  if (!run.eval) return;
  check_tokenizer(*run.eval, run.train.tokenizer, "data.train");
  check_tokens(recipe, model, *run.eval);
  run.plan.eval = plan_data(*run.eval);
}

}  // namespace strait::planner
