#pragma once

#include "framework/store/sample.h"
#include "launcher/cli/compute_request.h"
#include "launcher/worker/model_part.h"
#include "models/model_config.h"

namespace strait::compute {

// A run and one of its complete checkpoints.
struct RunCheckpoint {
  plan::RunFile run;
  models::ModelConfig config;
  std::filesystem::path checkpoint;
  store::Step step{};
  std::string warning;  // a newer checkpoint that had to be passed over; empty: none
};

// UserError where there is no run or no such checkpoint.
RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory,
                              const std::string& which = cli::kNewest);

// Whether that checkpoint's weights, in float32, fit into the memory that this machine has free.
bool fits_here(const RunCheckpoint& source);

// The model of a checkpoint in one piece. UserError, StoreError where its files are damaged.
std::unique_ptr<worker::ModelPart> load_whole_model(const RunCheckpoint& source);

// `automatic`: here, unless the run has hosts and the model does not fit into this machine's
// memory.
cli::Place choose_place(const RunCheckpoint& source, cli::Place wanted);

// How many requests keep every stage busy.
std::size_t requests_in_flight(const RunCheckpoint& source, cli::Place place);

// What of this machine's memory is left for keys and values, before the model is loaded. Of stages
// on hosts it is not known.
std::optional<std::int64_t> memory_for_cache(const RunCheckpoint& source, cli::Place place);

// Asks until the client has finished. The exit code of what happened on hosts; its cause is on
// stderr then. UserError, StoreError: the model could not be loaded or the hosts not be used.
base::ExitCode ask_model(const std::filesystem::path& run, const RunCheckpoint& source,
                         cli::Place place, run::InferenceClient& client);

}  // namespace strait::compute
