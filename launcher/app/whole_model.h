#pragma once

#include <filesystem>
#include <memory>

#include "framework/tensors/checkpoint_reader.h"
#include "launcher/plan/run_files.h"
#include "models/model.h"
#include "models/model_config.h"

namespace strait::app {

// A run's model in one piece, from the newest complete checkpoint over all stages' shards.
struct WholeModel {
  plan::RunFile run;
  models::ModelConfig config;
  std::filesystem::path checkpoint;
  store::Step step{};
  std::unique_ptr<models::Model> model;
  std::string warning;  // a newer checkpoint that had to be passed over; empty: none
};

// UserError where there is no run or no checkpoint; StoreError where shards are damaged.
WholeModel load_whole_model(const std::filesystem::path& run_directory);

}  // namespace strait::app
