#pragma once

#include <filesystem>

#include "launcher/control/run_directory.h"
#include "launcher/plan/run_files.h"
#include "launcher/planner/plan_maker.h"

namespace strait::app {

struct PreparedRun {
  control::RunDirectory directory;
  plan::RunFile run;
};

// Makes the directory of a new run, with everything that stages and a later resume need. Where that
// fails, or the user interrupts it, no directory stays, and an earlier run has its name back.
// UserError: among others `interrupted`.
PreparedRun prepare_run(const std::filesystem::path& path, planner::PlannedRun planned,
                        control::RunDirectory::Existing existing);

// The files and folders that a recipe names, for changes.
std::vector<std::string*> paths_in(recipe::Recipe& recipe);
// Stages and later commands may have another working directory.
void make_paths_absolute(recipe::Recipe& recipe);

}  // namespace strait::app
