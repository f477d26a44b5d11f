#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/store/sample.h"
#include "launcher/app/text_coder.h"
#include "launcher/plan/run_files.h"
#include "models/model.h"
#include "models/model_config.h"

namespace strait::app {

// A run and its newest complete checkpoint.
struct RunCheckpoint {
  plan::RunFile run;
  models::ModelConfig config;
  std::filesystem::path checkpoint;
  store::Step step{};
  std::string warning;  // a newer checkpoint that had to be passed over; empty: none
};

// UserError where there is no run or no checkpoint.
RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory);

// That checkpoint's model in one piece, over all stages' shards.
struct WholeModel : RunCheckpoint {
  std::unique_ptr<models::Model> model;
};

// UserError where there is no run or no checkpoint; StoreError where shards are damaged.
WholeModel load_whole_model(const std::filesystem::path& run_directory);

struct GenerationOptions {
  std::int64_t max_tokens = 64;
  double temperature = 0;  // 0: greedy
  std::int64_t top_k = 0;  // sample among this many; 0: all
  std::uint64_t seed = 1;
  bool chat = false;  // the prompt is what a user says
};

// Continues a prompt with a whole model until a token that ends a record, the
// model's last position, or the limit of tokens. Greedy is a pure function of model and prompt;
// sampling also of the seed. UserError where the prompt itself is too long.
std::string generate_text(models::Model& model, std::int64_t positions, TextCoder& coder,
                          const std::string& prompt, const GenerationOptions& options);

// A few prompts of the evaluation data with the trained model's completions and the expected ones.
// Empty where the data has no prompts.
std::vector<std::string> show_samples(const std::filesystem::path& run_directory);

}  // namespace strait::app
