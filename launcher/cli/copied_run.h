#pragma once

#include <cstdint>
#include <filesystem>

#include "framework/store/checkpoint.h"

namespace strait::cli {

// What copy_run() has copied.
struct CopiedRun {
  store::Step step{};
  store::Part part = store::Part::all;  // weights: it can be exported and asked, not resumed
  std::uint64_t bytes = 0;
};

// Makes a run of its own from a run and one of its checkpoints, which may be on another disk:
// everything that resume, export, eval and generate read of a run directory, but for files that the
// recipe names elsewhere. Each file is compared with its hash while it is copied, and durable; the
// plan comes last, so that a copy that was interrupted is no run. UserError: `target` exists, or
// the weights under the run's adapters are damaged. StoreError: a file of the checkpoint is
// damaged, or the disk is full.
CopiedRun copy_run(const std::filesystem::path& run, const std::filesystem::path& target,
                   const store::Checkpoint& checkpoint);

}  // namespace strait::cli
