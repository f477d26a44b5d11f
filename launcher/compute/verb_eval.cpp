
#include <iostream>
#include <numeric>

#include "framework/data/data_preparation.h"
#include "framework/data/token_file.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/verbs.h"
#include "launcher/planner/planned_data.h"
#include "launcher/planner/planned_model.h"
#include "launcher/tokenizer/tokenizer_worker.h"
#include "stages/batch_source.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;

// The loss of a model over all rows of a token file, some rows at a time. The sum has one order,
// whatever the order of the answers.
class Evaluation : public run::InferenceClient {
 public:
  // `in_flight`: requests in flight at the same time.
  Evaluation(std::shared_ptr<const data::TokenFile> data, std::int64_t rows, std::size_t in_flight);

  std::vector<run::InferenceRequest> begin() override;
  std::vector<run::InferenceRequest> on_answer(const run::InferenceAnswer& answer) override;
  bool finished() const override { return answered_ == losses_.size(); }

  std::int64_t target_tokens() const { return target_tokens_; }
  double loss() const;  // mean over the target tokens, once finished

 private:
  run::ScoreRows next();

  std::shared_ptr<const data::TokenFile> data_;
  const stages::BatchSource source_;
  const std::size_t in_flight_;
  std::int64_t target_tokens_ = 0;
  std::vector<double> losses_;  // by request
  std::size_t asked_ = 0;
  std::size_t answered_ = 0;
};

constexpr stages::Phase kEvaluation{store::Step{}, false};
// What one message holds easily.
constexpr std::int64_t kMostTokens = 1 << 16;

stages::BatchOptions batch_of(const data::TokenFile& data, std::int64_t rows) {
  stages::BatchOptions options;
  options.micro_batch_rows = std::clamp<std::int64_t>(kMostTokens / data.row_length(), 1, rows);
  return options;
}

Evaluation::Evaluation(std::shared_ptr<const data::TokenFile> data, std::int64_t rows,
                       std::size_t in_flight)
    : data_(std::move(data)),
      source_(nullptr, data_, batch_of(*data_, rows)),
      in_flight_(in_flight),
      target_tokens_(source_.target_tokens(kEvaluation)) {
  const std::int64_t per_request = batch_of(*data_, rows).micro_batch_rows;
  losses_.resize(static_cast<std::size_t>((data_->rows() + per_request - 1) / per_request));
}

run::ScoreRows Evaluation::next() {
  const auto number = static_cast<MicroBatch>(asked_++);
  const codec::Rows rows = source_.rows(kEvaluation, number);
  const std::vector<std::int64_t> tokens = source_.padded_tokens(kEvaluation, number);
  run::ScoreRows request;
  request.number = strait::number(number);
  request.padded_length = rows.padded_length;
  request.tokens.assign(tokens.begin(), tokens.end());
  std::int64_t row_start = 0;
  for (const codec::Row& row : rows.rows) {
    request.documents_of_rows.push_back(std::ssize(row.documents));
    std::ranges::copy(row.documents, std::back_inserter(request.document_lengths));
    for (const std::int64_t place : data_->targets(row.sample)) {
      std::vector<std::int64_t>& spans = request.target_spans;
      const bool goes_on = !spans.empty() && spans.back() == row_start + place;
      if (!goes_on) spans.insert(spans.end(), 2, row_start + place);
      spans.back() = row_start + place + 1;
    }
    row_start += rows.padded_length;
  }
  return request;
}

std::vector<run::InferenceRequest> Evaluation::begin() {
  std::vector<run::InferenceRequest> requests;
  while (asked_ < std::min(in_flight_, losses_.size())) requests.emplace_back(next());
  return requests;
}

std::vector<run::InferenceRequest> Evaluation::on_answer(const run::InferenceAnswer& answer) {
  if (!answer.loss_sum || answer.number < 0 || answer.number >= static_cast<std::int64_t>(asked_)) {
    throw base::MessageError("a loss of rows that were not asked for");
  }
  losses_[static_cast<std::size_t>(answer.number)] = *answer.loss_sum;
  ++answered_;
  if (asked_ == losses_.size()) return {};
  return {next()};
}

double Evaluation::loss() const {
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  return target_tokens_ == 0 ? 0.0 : sum / static_cast<double>(target_tokens_);
}

// What to do about a record that is longer than a row, if the run's recipe does not say: eval has
// no flag for such records, prepare has.
std::string remedy_for_long_records(const fs::path& run, const fs::path& source,
                                    const data::DataOptions& options) {
  return fmt::format(
      "to evaluate the others: {} --too-long drop out.safetensors && {} --data out.safetensors",
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
  if (!chosen.empty() && source.extension() == ".safetensors") {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has tokens and needs no tokenizer; leave out --tokenizer, or name a "
                          "file of records with --data FILE",
                          source.string());
  }
  const recipe::Recipe& recipe = run.plan.recipe;
  if (chosen_file.empty() && recipe.train.preference.loss != recipe::PreferenceKind::none) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run's own data are preferences, whose loss only the run itself "
                          "evaluates; name a file of other records with --data FILE");
  }
  data::DataOptions options = planner::data_options(recipe);
  options.evaluation = true;
  options.preferences = options.rated = false;
  options.targets = recipe.data.targets;
  if (source.extension() != ".safetensors") options.tokenizer = tokenizer_of_run(run, chosen);
  options.rows.remedy = remedy_for_long_records(directory, source, options);
  data::PreparedData data =
      data::read_data({{source.string()}}, options, planner::tokenizers_of(recipe));
  const std::string made_by = data_tokenizer(run);
  if (!data.tokenizer.empty() && !made_by.empty() && data.tokenizer != made_by) {
    throw base::UserError(base::ExitCode::mismatch,
                          "{} was made by another tokenizer or chat template ({}) than the run's "
                          "data ({}); prepare it with the run's",
                          source.string(), data.tokenizer, made_by);
  }
  for (const std::string& note : data.notes) cli::warn(note);
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

}  // namespace

base::ExitCode perform(const cli::EvalFlags& flags) {
  const data::PreparedData data =
      evaluation_data(flags.run, load_run(flags.run), flags.data, flags.tokenizer);
  // Not before the data is read: a live run removes checkpoints.
  const RunCheckpoint source = find_checkpoint(flags.run, flags.checkpoint);
  cli::warn(source.warning);
  const plan::Plan& plan = source.run.plan;
  const cli::Place place = choose_place(source, flags.place);
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

}  // namespace strait::compute
