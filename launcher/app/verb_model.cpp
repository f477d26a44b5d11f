#include "launcher/app/verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "framework/sync/layout.h"
#include "launcher/app/export_model.h"
#include "launcher/app/whole_model.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/planner/data_preparation.h"
#include "stages/batch_source.h"
#include "stages/chunk.h"
#include "stages/end_ports.h"
#include "stages/gradients.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace strait::app {
namespace {

struct GenerateFlags {
  std::filesystem::path run;
  std::string prompt;
  std::int64_t max_tokens = 128;
  double temperature = 0;
  std::int64_t top_k = 0;
  std::uint64_t seed = 1;
  std::string tokenizer;
  bool chat = false;
};

namespace fs = std::filesystem;

void warn(const WholeModel& whole) {
  if (!whole.warning.empty()) std::cerr << "strait: " << whole.warning << '\n';
}

base::ExitCode generate(const GenerateFlags& flags) {
  WholeModel whole = load_whole_model(flags.run);
  warn(whole);
  GenerationOptions options;
  options.max_tokens = flags.max_tokens;
  options.temperature = flags.temperature;
  options.top_k = flags.top_k;
  options.seed = flags.seed;
  options.chat = flags.chat;
  const auto coder = make_text_coder(tokenizer_of_run(whole.run, flags.tokenizer));
  const std::string answer = generate_text(*whole.model, models::describe(whole.config).positions,
                                           *coder, flags.prompt, options);
  // A pipe gets the model's bytes unchanged; on a terminal control characters are escaped.
  const bool watched = isatty(STDOUT_FILENO) != 0;
  std::cout << (watched ? base::printable_lines(answer) : answer)
            << (answer.empty() || answer.back() != '\n' ? "\n" : "");
  return base::ExitCode::done;
}

// The data to evaluate, made as the run's training data were.
planner::PreparedData evaluation_data(const plan::RunFile& run, const fs::path& source,
                                      const std::string& chosen) {
  planner::DataOptions options = planner::data_options(run.plan.recipe);
  if (source.extension() != ".safetensors") options.tokenizer = tokenizer_of_run(run, chosen);
  planner::PreparedData data = planner::read_data(source, options);
  const std::string made_by = data_tokenizer(run);
  if (!data.tokenizer.empty() && !made_by.empty() && data.tokenizer != made_by) {
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("{} was made by another tokenizer ({}) than the run's data ({}); prepare it "
                    "with the run's",
                    source.string(), data.tokenizer, made_by));
  }
  if (!data.note.empty()) std::cerr << fmt::format("strait: {}: {}\n", source.string(), data.note);
  return data;
}

base::ExitCode evaluate(const fs::path& run, const fs::path& data, const std::string& tokenizer,
                        bool json) {
  WholeModel whole = load_whole_model(run);
  warn(whole);
  const recipe::Recipe& recipe = whole.run.plan.recipe;
  const fs::path source = !data.empty()         ? data
                          : whole.run.plan.eval ? fs::path(whole.run.plan.eval->file)
                                                : fs::path();
  if (source.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the run's recipe has no data.eval; name a file with --data FILE");
  }
  const planner::PreparedData prepared = evaluation_data(whole.run, source, tokenizer);
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

}  // namespace

void add_eval(CLI::App& cli, Command& command) {
  struct Options {
    std::string run;
    std::string data;
    std::string tokenizer;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("eval", "the loss of a trained model");
  verb->add_option("run", options->run, "its directory, runs/NAME")->required();
  verb->add_option("--data", options->data, "instead of the recipe's data.eval");
  verb->add_option("--tokenizer", options->tokenizer, "a directory, or bytes; else the run's own");
  verb->add_flag("--json", options->json, "machine-readable output");
  verb->callback([options, &command] {
    command = [options] {
      return evaluate(options->run, options->data, options->tokenizer, options->json);
    };
  });
}

void add_generate(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<GenerateFlags>();
  CLI::App* verb = cli.add_subcommand("generate", "continue a prompt with a trained model");
  verb->add_option("run", options->run, "its directory, runs/NAME")->required();
  verb->add_option("--prompt", options->prompt, "what it continues")->required();
  verb->add_option("--max-tokens", options->max_tokens, "at most")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0 always takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--top-k", options->top_k, "sample among this many; 0: among all")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "of sampling")->capture_default_str();
  verb->add_option("--tokenizer", options->tokenizer, "a directory, or bytes; else the run's own");
  verb->add_flag("--chat", options->chat,
                 "the prompt is what a user says, in the tokenizer's chat template");
  verb->callback([options, &command] { command = [options] { return generate(*options); }; });
}

void add_export(CLI::App& cli, Command& command) {
  struct Options {
    std::string run;
    std::string directory;
    std::string type;
    double shard_gigabytes = 5;
    bool merge = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("export", "a Hugging Face directory of a trained model");
  verb->add_option("run", options->run, "its directory, runs/NAME")->required();
  verb->add_option("directory", options->directory, "a new one")->required();
  verb->add_option("--dtype", options->type, "instead of the value types of the source's files")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  verb->add_flag("--merge", options->merge, "of a LoRA run: the whole model, adapters added");
  verb->add_option("--shard-gb", options->shard_gigabytes, "the most that a file holds")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  verb->callback([options, &command] {
    command = [options] {
      ExportOptions how;
      how.merge = options->merge;
      if (options->type == "float32") how.type = at::kFloat;
      if (options->type == "bfloat16") how.type = at::kBFloat16;
      if (options->type == "float16") how.type = at::kHalf;
      how.shard_bytes = static_cast<std::uint64_t>(options->shard_gigabytes * 1e9);
      std::cout << export_model(options->run, options->directory, how);
      return base::ExitCode::done;
    };
  });
}

}  // namespace strait::app
