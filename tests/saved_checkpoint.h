#pragma once

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"

namespace strait::store {

// Files of a checkpoint that is not committed yet, and the manifest that would commit it. The
// content of each file is its step and name, so that none is equal to another one.
inline Manifest write_checkpoint_files(const std::filesystem::path& run, std::int64_t step,
                                       const std::vector<std::string>& names) {
  const std::filesystem::path path = checkpoint_directory(run, Step{step});
  make_directory(path);
  Manifest manifest;
  manifest.run_id = "run";
  manifest.step = Step{step};
  for (const std::string& name : names) {
    const FileSummary file = replace_file(path / name, std::to_string(step) + " " + name);
    manifest.files.push_back({name, file.size, file.hash});
  }
  return manifest;
}

// A complete checkpoint of these files. Returns its directory.
inline std::filesystem::path save_checkpoint(const std::filesystem::path& run, std::int64_t step,
                                             const std::vector<std::string>& names) {
  std::filesystem::path path = checkpoint_directory(run, Step{step});
  commit_checkpoint(path, write_checkpoint_files(run, step, names));
  return path;
}

// Newest first.
inline std::vector<std::int64_t> complete_steps(const std::filesystem::path& run,
                                                Verify verify = Verify::sizes) {
  std::vector<std::int64_t> steps;
  for (const Checkpoint& checkpoint : list_checkpoints(run, verify).complete) {
    steps.push_back(number(checkpoint.manifest.step));
  }
  return steps;
}

}  // namespace strait::store
