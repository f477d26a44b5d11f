#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "framework/store/sample.h"

namespace strait::store {

// The folder of checkpoints in a run's directory.
inline constexpr const char* kCheckpointsFolder = "checkpoints";

// The names of folders in it: step-N, and step-N.aside-K for one whose place
// another checkpoint takes. Numbers have no sign and no leading zeros; folders of other names are
// not strait's and are never touched.
inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::string_view kAsideInfix = ".aside-";

struct StepFolder {
  std::filesystem::path path;
  Step step{};
  bool aside = false;
};

// Newest first; none where the folder of checkpoints does not exist. StoreError: it cannot be
// listed.
std::vector<StepFolder> step_folders(const std::filesystem::path& run);

// The paths in a folder; none where it does not exist. Throws StoreError where the iterators of the
// standard library throw errors of their own.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

// Whether there is such a file or folder. StoreError: that cannot be seen, which is not "no".
bool is_present(const std::filesystem::path& path);

}  // namespace strait::store
