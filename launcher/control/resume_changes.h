#pragma once

#include <optional>
#include <string>

#include "framework/store/sample.h"

namespace strait::control {

class RunDirectory;

// What a resume changes in the files of a run, all of it or nothing. apply_changes() first writes
// all of it to a journal, one file: with that rename the change has happened, and the rest is
// completed by the same call or, if this process dies meanwhile, by the next RunDirectory::open().
struct ResumeChanges {
  // The checkpoint that the run goes on from. Absent: the newest one (only while pending).
  std::optional<store::Step> from;
  // The new texts of plan.json and recipe.toml. Absent: it stays.
  std::optional<std::string> plan;
  std::optional<std::string> recipe;
  // How the user asked for them (" --set train.steps=9"): to be asked for again if the start fails.
  std::optional<std::string> words = {};
};

// Sets the checkpoints later than `from`, which is present, aside, removes later steps from
// metrics.jsonl (they are trained, and written, again) and replaces plan and recipe. Call it once
// every process is up and has loaded: until then a start may fail, and the next one must find the
// run as it was. StoreError: something could not be changed; the next open() tries again.
void apply_changes(const RunDirectory& run, const ResumeChanges& changes);

// Completes changes that a former process began to apply; does nothing where there are none.
// StoreError. UserError: they are of another build.
void complete_changes(const RunDirectory& run);

// Changes that wait for a Slurm job, which will apply them. nullopt: those of an earlier submission
// are removed.
void keep_pending(const RunDirectory& run, const std::optional<ResumeChanges>& changes);
std::optional<ResumeChanges> pending_changes(const RunDirectory& run);

}  // namespace strait::control
