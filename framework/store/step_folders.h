#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "framework/store/sample.h"

namespace strait::store {

// The folder of checkpoints in a run's directory.
inline constexpr const char* kCheckpointsFolder = "checkpoints";

// The names of folders in it: step-N, and step-N.aside-K for one that was set aside to make room
// for another checkpoint. Numbers have no sign and no leading zeros. Other folders do not belong to
// strait and are never touched.
inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::string_view kAsideInfix = ".aside-";

struct StepFolder {
  std::filesystem::path path;
  Step step{};
  bool aside = false;
};

// Newest first; empty if the folder of checkpoints does not exist. StoreError: it cannot be listed.
std::vector<StepFolder> step_folders(const std::filesystem::path& run);

// The paths in a folder; empty if it does not exist. Throws StoreError where the standard library's
// iterators throw their own errors.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

// Whether the file or folder exists. StoreError: this cannot be determined, which is not "no".
bool is_present(const std::filesystem::path& path);

}  // namespace strait::store
