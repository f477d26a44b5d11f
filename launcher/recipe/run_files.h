#pragma once

#include "framework/net/identity.h"
#include "framework/store/manifest.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::plan {

// Folder and names of the rows that a run prepares, in its directory. A host that receives rows
// uses the same names.
inline constexpr const char* kRowsFolder = "data";
inline constexpr const char* kTrainRows = "train.safetensors";
inline constexpr const char* kEvalRows = "eval.safetensors";

// The base weights of a run with adapters, if another run's checkpoint held them, because that run
// prunes its checkpoints. They are in a folder step-N of the run's directory.
inline constexpr const char* kBaseFolder = "base";
inline constexpr const char* kSourceNote = "source";  // in its manifest: the path of the other run
// The folder in which the run of this plan keeps them, even if it is missing. Nullopt: it keeps
// none.
std::optional<std::filesystem::path> own_base(const std::filesystem::path& run, const Plan& plan);
// Base weights are in the run's directory, which may have been moved.
void find_own_base(const std::filesystem::path& run, recipe::Recipe& recipe);

// The content of <run>/plan.json.
struct RunFile {
  net::RunId run;
  Plan plan;
  // The recipe hash in the run's checkpoints, if a resume has changed keys that the hash covers.
  // Empty: the hash of the plan's recipe.
  std::string recipe_hash = {};
};

void write_run_file(const std::filesystem::path& file, const RunFile& run);
// Calls `load` with the plugins of the run. Finds rows in the run's directory even if it was moved.
// UserError: the file is missing, or its plan is not one of this build.
RunFile read_run_file(const std::filesystem::path& file, const recipe::LoadPlugins& load);

// The same with the file's text; `file` is named in errors.
std::string run_file_text(const RunFile& run);
RunFile parse_run_file(const std::string& text, const std::filesystem::path& file,
                       const recipe::LoadPlugins& load);

// The plan without what may be secret (recipe::without_secrets).
Plan without_secrets(Plan plan);

// Closes the directory of a run to other users if variables of a host, which may be secrets, will
// be in plan.json and recipe.toml. Call it before they are written.
void protect_secrets(const std::filesystem::path& directory, const recipe::Recipe& recipe);

// Identifies the checkpoints of this run. The hash leaves out plugins, [pipeline], [codec], [sync],
// [checkpoint] and [hosts], which only say how the run is executed.
std::string recipe_hash(const RunFile& run);

// Checks rows that the run did not prepare itself: a token file of the user is read in place.
// UserError: it has other rows `now` than when the run `began`; the message ends with the remedy.
void check_same_rows(const Plan::Data& data, const std::string& now, std::string_view began,
                     std::string_view remedy);

// The manifest of a checkpoint of this run, without the files and the codec generation.
store::Manifest manifest_for(const RunFile& run, std::uint32_t generation, store::Step step);

// On which host the shards of a checkpoint are. All functions are pure.

// A file of a checkpoint, with the process that wrote it.
struct WrittenShard {
  store::ShardFile file;
  net::ProcessName process;
  std::size_t host = 0;  // of that process
};

// In the order of the files; without files that no process of the plan writes.
std::vector<WrittenShard> written_shards(const Plan& plan,
                                         const std::vector<store::ShardFile>& files);

// The directory of a host's checkpoints in memory (checkpoint.memory_every), and of the copies that
// it has as a neighbour. Each host has its own, even where several are one machine.
std::filesystem::path memory_directory(const net::RunId& run, std::size_t host);

// For each host, the host that holds a second copy of its checkpoints in memory: the next one that
// has processes. Nullopt: no other host has processes, or this host has none.
std::vector<std::optional<std::size_t>> memory_neighbours(const Plan& plan);

// Upper limit of the bytes of checkpoints that a host holds in memory: two checkpoints of its own
// processes, because the newest is removed only when the next one is complete, and two of each host
// whose neighbour it is.
std::int64_t held_bytes(const Plan& plan, std::size_t host);

}  // namespace strait::plan
