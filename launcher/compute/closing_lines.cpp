#include "launcher/compute/closing_lines.h"

#include "framework/store/store_error.h"
#include "framework/trace/metric_json.h"
#include "launcher/base/own_program.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/compute/sample_prompts.h"
#include "launcher/run/forecast_check.h"
#include "launcher/run/resume_point.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::compute {
namespace {

namespace fs = std::filesystem;

// A run whose losses were not finite or have diverged is not to be repeated as it was.
constexpr double kLowerRate = 0.1;

std::string with_lower_rate(const plan::Plan& plan) {
  return fmt::format(" --set train.learning_rate={:.3g}",
                     plan.recipe.train.learning_rate * kLowerRate);
}

std::string again_line(const fs::path& run, const std::string& change, const std::string& why) {
  return fmt::format("again     {}{}   ({})", run::run_again_command(run), change, why);
}

// After losses that were not finite, or have diverged: back to weights that are known to be good.
std::string line_to_good_weights(const char* label, const fs::path& run, const plan::Plan& plan,
                                 const std::vector<store::Step>& saved,
                                 const run::LossHistory& losses) {
  if (const auto good = store::newest_good(saved, losses.good())) {
    return fmt::format(
        "{:<9} {} resume {} --from {}{}   (the newest checkpoint that is known to be "
        "good)",
        label, base::command_name(), base::shell_word(run.string()), number(*good),
        with_lower_rate(plan));
  }
  if (losses.good()) {
    return again_line(
        run, with_lower_rate(plan),
        saved.empty() ? "there is no checkpoint" : "no checkpoint is known to be good");
  }
  // No weight has changed, so the learning rate has done nothing yet.
  if (plan.recipe.model.dtype == recipe::Dtype::bfloat16) {
    return again_line(run, " --set model.dtype=float32",
                      "no step was ever finite, so the learning rate is not why");
  }
  return again_line(run, "", "no step was ever finite: change the weights or the data first");
}

std::vector<std::string> lines_after_failure(const fs::path& run, const plan::Plan& plan,
                                             const run::Outcome& outcome, const std::string& asked,
                                             const run::LossHistory& losses) {
  // A model that was refused is not to be tried again.
  const bool refused =
      outcome.code == base::ExitCode::bad_input && asked.find(" --set model.path=") != asked.npos;
  // Once a launch has trained, the changes are in the run's plan, and a resume needs no flag.
  const std::string change = outcome.trained || refused ? std::string() : asked;
  const std::string resume = fmt::format("resume    {} resume {}{}", base::command_name(),
                                         base::shell_word(run.string()), change);
  std::vector<store::Step> saved;  // the newest first
  try {
    saved = store::committed_steps(run);
  } catch (const store::StoreError& error) {
    // How the run ended is known, and a disk that cannot be read now does not change it.
    return {fmt::format("{}   (its checkpoints cannot be seen: {})", resume, error.what())};
  }
  if (outcome.code == base::ExitCode::numeric) {
    return {line_to_good_weights("resume", run, plan, saved, losses)};
  }
  if (saved.empty()) return {again_line(run, change, "there is no checkpoint")};
  // Otherwise these words say from where.
  if (change.find(" --from ") != change.npos) return {resume};
  return {fmt::format("{}   (from step {}{})", resume, number(step_to_go_on_from(saved, losses)),
                      refused ? ", without what was refused" : "")};
}

// Of a run that has ended well, though its losses are not sound.
std::vector<std::string> lines_after_divergence(const fs::path& run, const plan::Plan& plan,
                                                const run::LossHistory& losses) {
  if (losses.divergence().empty()) return {};
  try {
    return {line_to_good_weights("go back", run, plan, store::committed_steps(run), losses)};
  } catch (const store::StoreError&) {
    return {};  // a disk that cannot be read now
  }
}

// "memory    0.0 2.71 GB of 2.44 GB planned, 1.0 ...": the most that each process has had, without
// code, libraries and what it had before it made its layers, which no plan counts; of one that
// computes on a GPU what its tensors took there. Of many processes, those that are furthest above
// their plans.
std::vector<std::string> memory_line(const fs::path& run, const plan::Plan& plan) {
  const std::string step = run::last_line_with(run / base::kMetricsFile, "\"memory_bytes\"");
  const auto metrics = nlohmann::json::parse(step, nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object()) return {};
  const auto measured = [&](const char* key, const std::string& process) {
    const auto table = metrics.find(key);
    if (table == metrics.end() || !table->is_object()) return std::int64_t{0};
    const auto bytes = table->find(process);
    const bool said = bytes != table->end() && bytes->is_number_integer();
    return said ? bytes->get<std::int64_t>() : 0;
  };
  struct Use {
    std::string process;
    std::int64_t most = 0;
    std::int64_t planned = 0;
    bool on_gpu = false;
    double ratio() const {
      return static_cast<double>(most) / static_cast<double>(std::max<std::int64_t>(1, planned));
    }
  };
  std::vector<Use> uses;
  std::int64_t program = 0;
  for (const plan::Plan::Process& process : plan.processes) {
    const std::string name = process.name.text();
    const std::int64_t most = measured("memory_bytes", name);
    const std::int64_t own = measured("program_bytes", name);
    if (const std::int64_t on_gpu = measured("gpu_memory_bytes", name); on_gpu > 0) {
      uses.push_back({name, on_gpu, plan::Plan::compute_bytes(process), true});
    } else if (most > 0) {
      uses.push_back({name, most - own, plan.memory_bytes(process), false});
      program = std::max(program, own);
    }
  }
  if (uses.empty()) return {};
  constexpr std::size_t kShown = 4;
  if (uses.size() > kShown) {
    std::ranges::sort(uses, std::greater(), &Use::ratio);
    uses.resize(kShown);
  }
  std::vector<std::string> texts;
  texts.reserve(uses.size());
  for (const Use& use : uses) {
    texts.push_back(fmt::format("{} {} of {} planned{}", use.process, base::byte_text(use.most),
                                base::byte_text(use.planned), use.on_gpu ? " on its GPU" : ""));
  }
  std::string line = fmt::format("memory    {}", fmt::join(texts, ", "));
  if (program > 0) {
    line += fmt::format(" (each process also has {} of program and libraries)",
                        base::byte_text(program));
  }
  return {line};
}

// "forecast  a step 2.71 s, took 3.21 s; compute of stage 1.0 (host b) 0.9 s, took 1.4 s": the
// whole step and the parts that differ most.
std::vector<std::string> forecast_line(const fs::path& run) {
  constexpr std::size_t kShown = 3;
  try {
    const auto status = run::read_run_status(run);
    if (!status) return {};
    std::vector<std::string> texts;
    for (const run::PartSeconds& one :
         trace::read_metrics<run::PartSeconds>(status->value("parts", nlohmann::json::array()))) {
      if (!one.measured || texts.size() == kShown) break;
      texts.push_back(
          fmt::format("{} {:.3g} s, took {:.3g} s", one.part, one.forecast, *one.measured));
    }
    if (texts.empty()) return {};
    return {fmt::format("forecast  {}", fmt::join(texts, "; "))};
  } catch (const base::UserError&) {
    return {};  // a damaged file changes nothing of how the run ended
  } catch (const nlohmann::json::exception&) {
    return {};  // the same
  }
}

// Of the held-out data, else of the training data.
std::vector<SamplePrompt> prompts_to_try(const recipe::Recipe& recipe) {
  constexpr std::size_t kTried = 20;  // the first one that is short is taken
  try {
    std::vector<SamplePrompt> prompts = held_out_prompts(recipe, kTried);
    return prompts.empty() ? training_prompts(recipe, kTried) : prompts;
  } catch (const store::StoreError&) {
    return {};  // data that are gone change nothing of how the run ended
  }
}

}  // namespace

std::vector<std::string> closing_lines(const fs::path& run, const plan::Plan& plan,
                                       const run::Outcome& outcome, const std::string& asked,
                                       const run::LossHistory& losses) {
  if (outcome.code != base::ExitCode::done) {
    return lines_after_failure(run, plan, outcome, asked, losses);
  }
  const std::string name = base::shell_word(run.string());
  const std::string command = base::command_name();
  std::vector<std::string> lines = {
      fmt::format("results   {0}: report.html, metrics.jsonl, checkpoints/step-{1}", run.string(),
                  number(outcome.step))};
  std::ranges::move(memory_line(run, plan), std::back_inserter(lines));
  std::ranges::move(forecast_line(run), std::back_inserter(lines));
  if (!outcome.early.empty()) {
    lines.push_back(
        fmt::format("train on  {} resume {} --set train.stop_when.no_better=0", command, name));
  }
  if (outcome.stopped && !losses.is_bad(outcome.step)) {
    lines.push_back(fmt::format("resume    {} resume {}   (from step {} of {})", command, name,
                                number(outcome.step), plan.steps));
  }
  // A model that is not sound is not worth a try.
  const std::vector<std::string> back = lines_after_divergence(run, plan, losses);
  std::ranges::copy(back, std::back_inserter(lines));
  if (back.empty()) {
    lines.push_back(fmt::format("try       {} generate {} {}", command, name,
                                prompt_flags(prompts_to_try(plan.recipe))));
  }
  lines.push_back(fmt::format("export    {} export {} {}", command, name,
                              base::shell_word(plan.recipe.name + "-export")));
  return lines;
}

std::string complete_line(const fs::path& run, const plan::Plan& plan, const std::string& early,
                          bool was_to_change) {
  const std::string why =
      early.empty() ? fmt::format("all {} steps are done", plan.steps) : "it ended early: " + early;
  const std::string change =
      early.empty() ? fmt::format("train.steps={}", 2 * plan.steps) : "train.stop_when.no_better=0";
  return fmt::format("{} is complete: {}{}; to train on: {} --set {}", run.string(), why,
                     was_to_change ? ", so nothing was changed" : "",
                     base::strait_command("resume", run), change);
}

std::string as_words(const cli::RunOptions& options) {
  std::string words;
  if (options.from) words += fmt::format(" --from {}", *options.from);
  for (const std::string& one : options.overrides) words += " --set " + base::shell_word(one);
  for (const std::uint32_t replica : options.without)
    words += fmt::format(" --without {}", replica);
  return words;
}

}  // namespace strait::compute
