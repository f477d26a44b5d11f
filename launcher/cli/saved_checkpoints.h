#pragma once

#include "framework/store/checkpoint.h"
#include "launcher/recipe/run_files.h"

namespace strait::cli {

// A folder of `<run>/checkpoints`, for people.
struct SavedCheckpoint {
  // damaged: certainly, by the sizes of its files, or because they were read. foreign: good for
  // another build only. unfinished: being written, or left by a writer that died. aside: its place
  // was taken.
  enum class State { complete, damaged, foreign, unfinished, aside };

  std::filesystem::path path;
  store::Step step{};
  State state = State::complete;
  store::Part here = store::Part::none;  // of a complete one
  std::vector<std::string> hosts;        // on which the rest of a complete one lies
  double saved = 0;                      // seconds since 1970; 0: it never was
  std::uint64_t bytes = 0;               // of all its files, here or not
  std::int64_t files = 0;
  std::string problem;  // a sentence; of a complete one empty
};

const char* name_of(SavedCheckpoint::State state);
const char* name_of_part(store::Part part);

// Newest first. Reads manifests and sizes only. StoreError storage_io: the disk cannot be read now.
std::vector<SavedCheckpoint> saved_checkpoints(const std::filesystem::path& run,
                                               const plan::Plan& plan);

// The newest complete ones may have damage that sizes do not show, and what is damaged is not to be
// counted upon: reads them, newest first, until `keep` are intact, and the newest that is known to
// be good (that of step `good` or an older one), and all that may be `best`. The others become
// damaged. Returns what is wrong,
// a sentence each. Of one whose files lie on hosts, only what is here is read. StoreError
// storage_io: the disk cannot be read now.
std::vector<std::string> mark_damaged(std::vector<SavedCheckpoint>& list, const plan::Plan& plan,
                                      std::int64_t keep, std::optional<store::Step> good = {},
                                      const store::BestRule& best = {});

// What to copy instead of the checkpoint of step `damaged`: "; step 4 is intact: copy it with
// --step 4". Reads the others, newest first, until one is intact.
std::string intact_instead(const std::vector<SavedCheckpoint>& list, const plan::Plan& plan,
                           store::Step damaged);

// Which of these stay: the `keep` newest complete ones, the newest complete one that is known to be
// good (that of step `good` or an older one), the `best`, complete ones of steps that `every`
// divides, all of another build, and damaged ones among those newest. Newest first; empty where
// none is complete.
std::vector<store::Step> kept_steps(const std::vector<SavedCheckpoint>& list, std::int64_t keep,
                                    std::optional<std::int64_t> every,
                                    std::optional<store::Step> good = {},
                                    const store::BestRule& best = {});

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
