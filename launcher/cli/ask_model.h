#pragma once

#include "framework/store/sample.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/inference.h"
#include "launcher/worker/model_part.h"
#include "models/model_config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}  // namespace CLI

namespace strait::cli {

struct GenerationOptions;

// A run and one of its complete checkpoints.
struct RunCheckpoint {
  plan::RunFile run;
  models::ModelConfig config;
  std::filesystem::path checkpoint;
  store::Step step{};
  std::string warning;  // a newer checkpoint that had to be passed over; empty: none
};

// Which one: "newest", "best" (that with the lowest evaluation loss, of those that are here), or a
// step.
inline constexpr const char* kNewest = "newest";
// --checkpoint; `which` outlives the verb.
void add_which_checkpoint(CLI::App* verb, std::string& which);

// UserError where there is no run or no such checkpoint.
RunCheckpoint find_checkpoint(const std::filesystem::path& run_directory,
                              const std::string& which = kNewest);

// Whether that checkpoint's weights, in float32, fit into the memory that this machine has free.
bool fits_here(const RunCheckpoint& source);

// The model of a checkpoint in one piece. UserError, StoreError where its files are damaged.
std::unique_ptr<worker::ModelPart> load_whole_model(const RunCheckpoint& source);

// Where a trained model is asked: in this process, or over the stages of its run on its hosts.
enum class Place { automatic, here, hosts };

// --max-tokens, --temperature and the others of one answer.
void add_sampling(CLI::App* verb, GenerationOptions& options);

// The flag --on.
void add_place(CLI::App* verb, Place& place);

// `automatic`: here, unless the run has hosts and the model does not fit into this machine's
// memory.
Place choose_place(const RunCheckpoint& source, Place wanted);

// How many requests keep every stage busy.
std::size_t requests_in_flight(const RunCheckpoint& source, Place place);

// Asks until the client has finished. The exit code of what happened on hosts; its cause is on
// stderr then. UserError, StoreError: the model could not be loaded or the hosts not be used.
base::ExitCode ask_model(const std::filesystem::path& run, const RunCheckpoint& source, Place place,
                         run::InferenceClient& client);

}  // namespace strait::cli
