#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "framework/store/sample.h"
#include "launcher/plan/run_files.h"
#include "launcher/worker/model_part.h"
#include "models/model_config.h"

namespace strait::cli {

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

// Whether that checkpoint's weights, in float32, fit into the memory that this machine has free.
bool fits_here(const RunCheckpoint& source);

// The model of a checkpoint in one piece. UserError, StoreError where its files are damaged.
std::unique_ptr<worker::ModelPart> load_whole_model(const RunCheckpoint& source);

}  // namespace strait::cli
