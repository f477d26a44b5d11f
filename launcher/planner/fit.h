#pragma once

#include "launcher/recipe/recipe.h"

// `strait plan --fit`: which GPUs on how many hosts a model fits into, and how fast it trains.
namespace strait::planner {

// How a model trains on this number of hosts with a GPU each, by the fastest of its layouts.
struct FitPlan {
  int hosts = 1;
  double megabits = 0;  // of a host's line, each direction; one host has none
  std::int64_t stages = 0;
  std::int64_t replicas = 0;
  double tokens_per_second = 0;  // of two digits, as the speeds are assumed
  recipe::Recompute recompute = recipe::Recompute::none;
  recipe::Moments moments = recipe::Moments::float32;
  recipe::Offload offload = recipe::Offload::none;
};

struct FitRow {
  std::string model;
  std::string training;  // "full", "LoRA", "QLoRA"
  std::string gpu;
  std::int64_t gibibytes = 0;                     // of the GPU
  std::vector<FitPlan> plans;                     // only those that fit
  std::optional<int> second_host = std::nullopt;  // Mbit/s from which two hosts beat one
};

// A model of `--fit`, and what the plans take from its recipe: model, adapters, rows, batch and
// codec.
struct FitModel {
  std::string name;
  std::string config;  // that of the built-in sizes; empty: the recipe names a directory
  recipe::Recipe recipe;
};

// Sizes of 1B to 32B parameters, with the shapes of public models.
std::vector<FitModel> fit_sizes();

// For each model, training and size of GPU: the plans of 1, 2, 4 and 8 hosts on each of these
// lines. Depends on nothing but these models and what plans assume. UserError: a recipe has a
// fault.
std::vector<FitRow> fit_rows(const std::vector<FitModel>& models,
                             const std::vector<double>& megabits);

// A line for each row, for one line of hosts.
std::string fit_text(const std::vector<FitRow>& rows);
nlohmann::json to_json(const FitRow& row);

}  // namespace strait::planner
