#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "framework/net/run_id.h"
#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::plan {

// The rows that a run makes of its data, in its directory. A host that gets rows has these names,
// too.
inline constexpr const char* kRowsFolder = "data";
inline constexpr const char* kTrainRows = "train.safetensors";
inline constexpr const char* kEvalRows = "eval.safetensors";

// The weights that a run of adapters began with, where another run had them, which prunes its
// checkpoints: a folder step-N in its directory.
inline constexpr const char* kBaseFolder = "base";
inline constexpr const char* kSourceNote = "source";  // in its manifest: where the other run had it
// Where the run of this plan keeps them, there or lost; nullopt: it keeps none.
std::optional<std::filesystem::path> own_base(const std::filesystem::path& run, const Plan& plan);
// Such weights are in the run's directory, wherever that is now: a run may be moved.
void find_own_base(const std::filesystem::path& run, recipe::Recipe& recipe);

// The content of <run>/plan.json.
struct RunFile {
  net::RunId run;
  Plan plan;
  // What the run's checkpoints record as the hash of its recipe, once a resume has changed keys
  // that this hash covers. Empty: the hash of the plan's recipe.
  std::string recipe_hash = {};
};

void write_run_file(const std::filesystem::path& file, const RunFile& run);
// `load` is called with the plugins of the run. Rows that are in the run's directory are found
// there, though it was moved. UserError: the file is missing, or its plan is not one of this build.
RunFile read_run_file(const std::filesystem::path& file, const recipe::LoadPlugins& load);

// Both with the file's text instead; `file` is named in errors.
std::string run_file_text(const RunFile& run);
RunFile parse_run_file(const std::string& text, const std::filesystem::path& file,
                       const recipe::LoadPlugins& load);

// The plan without what may be secret (recipe::without_secrets).
Plan without_secrets(Plan plan);

// Before a plan or recipe with secrets is written into the directory of a run: closes it to other
// users. Variables of a host may be secrets.
void protect_secrets(const std::filesystem::path& directory, const recipe::Recipe& recipe);

// By which a checkpoint is recognised as one of this run: of the recipe without plugins,
// [pipeline], [codec], [sync], [checkpoint] and [hosts], which say how the run is executed.
std::string recipe_hash(const RunFile& run);

// The rows are the run's own, but a token file of the user is read where it is. UserError: it has
// other rows `now` than when the run `began`; the message ends with the remedy.
void check_same_rows(const Plan::Data& data, const std::string& now, std::string_view began,
                     std::string_view remedy);

// The manifest of a checkpoint of this run, without the files and the codec generation.
store::Manifest manifest_for(const RunFile& run, std::uint32_t generation, store::Step step);

}  // namespace strait::plan
