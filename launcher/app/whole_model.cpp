#include "launcher/app/whole_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "framework/store/record_reader.h"
#include "launcher/app/checkpoint_weights.h"
#include "launcher/base/errors.h"
#include "launcher/planner/planned_model.h"
#include "launcher/plugin/plugin_file.h"
#include "models/key_value_cache.h"

namespace strait::app {

namespace {

bool weights_are_here(const std::filesystem::path& run) {
  return !store::list_checkpoints(run, store::Verify::sizes, store::Part::weights).complete.empty();
}

}  // namespace

RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory) {
  RunCheckpoint whole;
  whole.run = plan::read_run_file(run_directory / "plan.json", plugin::load_plugins);
  const recipe::Recipe::Checkpoint& settings = whole.run.plan.recipe.checkpoint;
  if (settings.home == recipe::CheckpointHome::none && !weights_are_here(run_directory)) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the weights of {0} stay on its hosts (checkpoint.home = \"none\"); fetch them "
                    "with: strait resume {0}",
                    run_directory.string()));
  }
  const auto newest = store::choose_checkpoint(run_directory, store::Part::weights);
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
  whole.config = planner::planned_model(whole.run.plan);
  return whole;
}

WholeModel load_whole_model(const std::filesystem::path& run_directory) {
  WholeModel whole{find_checkpoint(run_directory), nullptr};
  // As many threads as a stage had, so that sums have the same bits as in the run. More would also
  // be slower: a token of a small model is less work than waking them.
  at::set_num_threads(static_cast<int>(whole.run.plan.processes.front().threads));
  const auto layers = static_cast<int>(models::describe(whole.config).layers.size());
  whole.model = models::make_model(whole.config, {0, layers - 1}, at::kFloat, at::kCPU);
  const CheckpointWeights weights(whole);
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : whole.model->parameters()) {
    if (parameter.owned) parameter.value.detach().copy_(weights.read(parameter.name));
  }
  return whole;
}

namespace {

// Logits of the token after `tokens`, which continue the cached prefix.
at::Tensor next_logits(models::Model& model, models::KeyValueCache& cache,
                       const std::vector<std::int64_t>& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const models::Pass pass = models::make_pass(cache, 1, count);
  at::Tensor values = at::tensor(tokens, at::kLong).view({1, count});
  for (const auto& layer : model.layers()) values = layer->forward(values, pass);
  return kernels::project_logits(model.head()->projection(), values.select(1, count - 1))
      .squeeze(0);
}

std::int64_t choose_token(const at::Tensor& logits, const GenerationOptions& options,
                          const at::Generator& generator) {
  if (options.temperature <= 0) return logits.argmax().item<std::int64_t>();
  const std::int64_t kept =
      options.top_k > 0 ? std::min(options.top_k, logits.size(0)) : logits.size(0);
  const auto [best, tokens] = logits.topk(kept);
  const at::Tensor weights = (best / options.temperature).softmax(0);
  return tokens[at::multinomial(weights, 1, false, generator).item<std::int64_t>()]
      .item<std::int64_t>();
}

}  // namespace

std::string generate_text(models::Model& model, std::int64_t positions, TextCoder& coder,
                          const std::string& prompt, const GenerationOptions& options) {
  const std::vector<std::int32_t> encoded = coder.encode(prompt, options.chat);
  const auto length = static_cast<std::int64_t>(encoded.size());
  if (length == 0 || length >= positions) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the prompt has {} tokens; 1 to {} leave room for an answer in this "
                    "model",
                    length, positions - 1));
  }
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::vector<std::int64_t> tokens(encoded.begin(), encoded.end());
  std::vector<std::int32_t> answer;
  const std::int64_t most = std::min(options.max_tokens, positions - length);
  models::KeyValueCache cache(length + most);
  while (static_cast<std::int64_t>(answer.size()) < most) {
    const std::int64_t next = choose_token(next_logits(model, cache, tokens), options, generator);
    if (coder.is_end(next)) break;
    answer.push_back(static_cast<std::int32_t>(next));
    tokens = {next};
  }
  return coder.decode(encoded, answer);
}

namespace {

constexpr int kShown = 6;  // samples: what fits on a screen

// Cut to one line of the console.
std::string on_one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& letter : text) {
    if (letter == '\n' || letter == '\r' || letter == '\t') letter = ' ';
  }
  return text;
}

}  // namespace

std::vector<std::string> show_samples(const std::filesystem::path& run_directory) {
  const plan::RunFile run = plan::read_run_file(run_directory / "plan.json", plugin::load_plugins);
  const std::filesystem::path data = run.plan.recipe.data.eval;
  if (data.extension() != ".jsonl" && data.extension() != ".ndjson") return {};
  WholeModel whole = load_whole_model(run_directory);
  const std::int64_t positions = models::describe(whole.config).positions;
  const auto coder = make_text_coder(tokenizer_of_run(run, ""));
  std::vector<std::string> lines;
  int right = 0;
  store::RecordReader reader(data);
  while (static_cast<int>(lines.size()) < kShown) {
    const auto record = reader.next();
    if (!record) break;
    if (record->pieces.size() != 2 || !record->chat.empty() || record->pieces[0].is_target)
      continue;
    const std::string answer =
        generate_text(*whole.model, positions, *coder, record->pieces[0].text, GenerationOptions{});
    const bool same = on_one_line(answer) == on_one_line(record->pieces[1].text);
    right += same ? 1 : 0;
    lines.push_back(fmt::format("  {}  {} {}", same ? "right" : "wrong",
                                on_one_line(record->pieces[0].text), on_one_line(answer)));
  }
  if (lines.empty()) return {};
  lines.insert(
      lines.begin(),
      fmt::format("completions of evaluation prompts ({} of {} right):", right, lines.size()));
  return lines;
}

}  // namespace strait::app
