#include "launcher/app/base_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/plan/run_files.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

// They may be of the run that has just been moved aside for this one.
fs::path present_path(const control::RunDirectory& directory, const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!directory.moved_aside()) return whole;
  const fs::path inside =
      whole.lexically_relative(fs::absolute(directory.path()).lexically_normal());
  if (inside.empty() || *inside.begin() == "..") return whole;
  return (fs::absolute(*directory.moved_aside()) / inside).lexically_normal();
}

// The files of a complete checkpoint are never written to, so one may have two names.
void link_or_copy(const fs::path& from, const fs::path& to, const store::ShardFile& file) {
  std::error_code error;
  const fs::path whole = fs::canonical(from, error);
  if (!error) fs::create_hard_link(whole, to, error);
  if (!error) return;
  if (store::copy_file(from, to) == store::FileSummary{file.size, file.hash}) return;
  throw store::StoreError(store::StoreError::Kind::corrupt,
                          fmt::format("{} is damaged: its hash is not that of the manifest beside "
                                      "it",
                                      from.string()));
}

}  // namespace

void keep_base_weights(const control::RunDirectory& directory, plan::Plan& plan) {
  recipe::Recipe::Model& model = plan.recipe.model;
  if (model.weights != recipe::Weights::run) return;
  const fs::path from = present_path(directory, model.weights_run);
  model.weights_run = from.string();
  if (!model.lora) return;
  store::Manifest manifest =
      store::open_checkpoint(from, store::Verify::sizes, store::Part::weights);
  const fs::path folder = fs::absolute(directory.path() / plan::kBaseFolder / from.filename());
  store::make_directory(folder);
  manifest.files = store::files_of(manifest, store::Part::weights);
  for (const store::ShardFile& file : manifest.files) {
    link_or_copy(from / file.name, folder / file.name, file);
  }
  manifest.notes.try_emplace(plan::kSourceNote, from.string());  // of a base: where that was from
  store::commit_checkpoint(folder, manifest);
  model.weights_run = folder.lexically_normal().string();
}

}  // namespace strait::app
