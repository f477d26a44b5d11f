#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/app/emit.h"
#include "launcher/base/exit_code.h"

namespace strait::app {

struct RunWords {
  std::filesystem::path recipe;        // or, to resume, the run directory
  std::vector<std::string> overrides;  // --set key=value
  bool json = false;                   // machine-readable events on stdout
  std::vector<std::uint32_t> without;  // replicas that it begins without
  bool replace = false;                // move an earlier run of that name aside
  bool in_job = false;                 // this is the Slurm job itself: launch, submit nothing
};

// `strait plan RECIPE`: prints what would run, starts and writes nothing.
base::ExitCode show_plan(const RunWords& words);

// `strait plan RECIPE --emit KIND`: prints a script, commands or a manifest to launch it with.
base::ExitCode emit_plan(const RunWords& words, EmitKind kind);

// `strait run RECIPE`: plans, launches, and shows the run until it ends.
base::ExitCode run_recipe(const RunWords& words);

// Launches a run whose directory holds its plan and no checkpoint yet.
base::ExitCode run_prepared(const RunWords& words);

// `strait resume RUN`: goes on from the newest complete checkpoint, with the same bits as a run
// that was never stopped; with overrides as another pipeline (see changed_run.h).
base::ExitCode resume_run(const RunWords& words);

}  // namespace strait::app
