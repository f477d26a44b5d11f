#pragma once

#include <optional>
#include <string>

#include "framework/store/sample.h"

namespace strait::run {

class RunDirectory;

// The changes of a resume to the files of a run, all or nothing. apply_changes() first writes all
// of them to a journal, a single file. With the rename of that file the changes have happened. The
// rest is completed by the same call or, if this process dies meanwhile, by the next
// RunDirectory::open().
struct ResumeChanges {
  // The checkpoint that the run continues from.
  std::optional<store::Step> from;
  // The new texts of plan.json and recipe.toml. Absent: unchanged.
  std::optional<std::string> plan;
  std::optional<std::string> recipe;
};

// Sets aside the checkpoints later than `from`, which exists. Removes later steps from
// metrics.jsonl, because they will be trained and written again, and replaces plan and recipe. Call
// it when every process is up and has loaded: until then a start may fail, and the next one must
// find the run unchanged. StoreError: a change failed; the next open() tries again.
void apply_changes(const RunDirectory& run, const ResumeChanges& changes);

// Completes changes that an earlier process began to apply; otherwise does nothing. StoreError.
// UserError: they are of another build.
void complete_changes(const RunDirectory& run);

}  // namespace strait::run
