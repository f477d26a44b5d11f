#pragma once

#include <filesystem>
#include <vector>

#include "launcher/base/errors.h"

namespace strait::cli {

// A run as a list shows it, by its files.
struct ListedRun {
  std::filesystem::path path;
  std::string state;  // "training", "done", "ended: peer lost", "not started"
  bool live = false;
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::optional<double> loss;
  double updated = 0;  // seconds since 1970; 0: it has no status yet
};

// The runs in a folder, the one that was updated last first. One whose files are damaged is in the
// list, too. Empty where there is no such folder.
std::vector<ListedRun> runs_in(const std::filesystem::path& folder);

// Prints the runs in runs/, and how `verb` shows one of them.
base::ExitCode list_runs(const std::string& verb, bool as_json);

}  // namespace strait::cli
