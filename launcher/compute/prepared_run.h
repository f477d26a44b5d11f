#pragma once

#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/run_files.h"
#include "launcher/run/run_directory.h"

namespace strait::compute {

struct PreparedRun {
  run::RunDirectory directory;
  plan::RunFile run;
};

// Makes the directory of a new run, with everything that stages and a later resume need. Where that
// fails, or the user interrupts it, no directory stays, and an earlier run has its name back.
// UserError: among others `interrupted`.
PreparedRun prepare_run(const std::filesystem::path& path, planner::PlannedRun planned,
                        run::RunDirectory::Existing existing);

// The files and folders that a recipe names, for changes.
std::vector<std::string*> paths_in(recipe::Recipe& recipe);
// Stages and later commands may have another working directory.
void make_paths_absolute(recipe::Recipe& recipe);

}  // namespace strait::compute
