#pragma once

#include <functional>

#include "framework/store/manifest.h"
#include "framework/store/sample.h"

namespace strait::store {

// The protocol of `<run>/checkpoints/step-N/`. Every process writes its shard and reports it once
// it is durable under its name. Then one process commits: the checkpoint exists from the rename of
// the manifest on. A directory without a valid manifest is not a checkpoint, whatever its name.
// Nothing is ever written into a complete checkpoint. Stateless functions; one process at a time
// commits and prunes.
//
// A disk that fails or refuses (EIO, ESTALE, EMFILE ...) says nothing about a checkpoint: what
// cannot be read is neither damaged nor uncommitted. The call then throws StoreError storage_io
// before it passes over or removes anything.

std::filesystem::path checkpoint_directory(const std::filesystem::path& run, Step step);
// Removes this process's own shard of a checkpoint that was given up, because the next checkpoint
// may need the room. Does nothing to a complete checkpoint.
void withdraw_shard(const std::filesystem::path& checkpoint, const std::string& name);
// Copies a shard, complete and durable, and compares it with the manifest. StoreError corrupt: it
// is damaged.
void copy_shard(const std::filesystem::path& from, const std::filesystem::path& to,
                const ShardFile& shard);

// Makes the checkpoint exist. `may_commit` is called just before the rename and throws to forbid
// it: an old generation must not commit. The shards in the manifest must exist with their listed
// sizes, unless they are kept elsewhere. In that case their writers have reported them durable, and
// the checkpoint can be used here after they are fetched.
enum class Shards { here, elsewhere };
void commit_checkpoint(const std::filesystem::path& checkpoint, const Manifest& manifest,
                       const std::function<void()>& may_commit = {}, Shards shards = Shards::here);

// Whether the directory of a checkpoint has a manifest, so that it was complete once. False only if
// the manifest is certainly absent. StoreError: this cannot be determined.
bool is_committed(const std::filesystem::path& checkpoint);

// The manifest of a complete checkpoint. Checks nothing else, the sizes of all shards, or also
// their hashes (which reads everything). StoreError corrupt names the file, what was expected and
// what was found.
enum class Verify { manifest, sizes, hashes };
Manifest open_checkpoint(const std::filesystem::path& checkpoint, Verify verify,
                         Part part = Part::all);

struct Checkpoint {
  std::filesystem::path path;
  Manifest manifest;
};
struct Unusable {
  std::filesystem::path path;
  Step step{};
  std::string reason;
  bool committed = false;  // it has a manifest, so it was complete once
};
struct CheckpointList {
  std::vector<Checkpoint> complete;  // newest first
  // newest first; torn, damaged, of another build, or being written
  std::vector<Unusable> unusable;
};
CheckpointList list_checkpoints(const std::filesystem::path& run, Verify verify = Verify::sizes,
                                Part part = Part::all);

// Where to resume: the newest checkpoint whose every byte is correct. `warning` names both
// checkpoints if a newer one was passed over because it is damaged or incomplete. StoreError
// corrupt: there are checkpoints, but none is correct. Another kind: a newer one belongs to another
// build or cannot be read now. Nothing: there is no checkpoint.
struct Resumable {
  Checkpoint checkpoint;
  std::string warning;
  std::string damage;  // what is wrong with newer ones that were complete once; empty: nothing
};
std::optional<Resumable> choose_checkpoint(const std::filesystem::path& run, Part part = Part::all);

// The checkpoints that were complete once, and those that cannot be examined now. Newest first.
std::vector<Step> committed_steps(const std::filesystem::path& run);

// Before a run continues from `step`: moves every newer step-N out of the way. One that was
// committed, or that cannot be examined, is set aside (step-N.aside-K). One that was never
// committed has nothing to recover and is removed. A host that holds some shards of a run gets the
// manifest after the commit, if at all, so there all are set aside. Returns the new paths.
enum class Uncommitted { remove, set_aside };
std::vector<std::filesystem::path> set_aside_newer(const std::filesystem::path& run, Step step,
                                                   Uncommitted uncommitted = Uncommitted::remove);

// The result of a pruning. What cannot be removed only takes room: the caller reports it and
// continues, and the next pruning tries again.
struct Pruned {
  struct Left {
    std::filesystem::path path;
    std::string reason;  // one sentence
  };
  std::vector<std::filesystem::path> removed;
  std::vector<Left> left;
};

// The newest of these steps (newest first) whose weights are known to be good, which holds for
// `good` and all earlier steps; nullopt: none is.
std::optional<Step> newest_good(const std::vector<Step>& steps, std::optional<Step> good);

// The checkpoints with the lowest losses in an evaluation.
struct BestRule {
  std::int64_t keep = 0;    // how many of them stay
  std::vector<Step> order;  // evaluated steps, the best first
};
// The best of these steps, at most `rule.keep`.
std::vector<Step> best_of(const std::vector<Step>& steps, const BestRule& rule);

// Which of these complete checkpoints (newest first) stay: the `keep` newest ones, the newest one
// that is known to be good, and the best. So a good one is never removed for one that is not known
// to be good. Pure; every pruning uses it.
std::vector<Step> steps_to_keep(const std::vector<Step>& complete, std::int64_t keep,
                                std::optional<Step> good, const BestRule& best = {});

// Prunes the checkpoints on a disk. Called when a launch has loaded its checkpoint, and after each
// commit. Throws no StoreError. Keeps steps_to_keep() of the complete checkpoints, at least two.
// Removes:
// - all other complete checkpoints;
// - damaged ones older than all kept ones, if `keep` are kept;
// - folders without manifest that are older than the newest complete one;
// - files of strait in kept ones that the manifest does not list;
// - what was set aside: at a start if it is not newer than the newest complete one, after a commit
//   all of it.
//
// A step-N newer than the newest complete one is never touched. A checkpoint counts as complete if
// `part` of it is here.
enum class PruneTime { at_start, after_commit };
struct PruneRule {
  std::int64_t keep = 2;
  std::optional<Step> good = {};  // as in newest_good()
  Part part = Part::all;
  BestRule best = {};
};
Pruned prune_checkpoints(const std::filesystem::path& run, const PruneRule& rule,
                         PruneTime time = PruneTime::after_commit);

// If the shards of a run are on several hosts, none of them has a whole checkpoint, and the
// committing process decides which ones stay. Removes every step-N that is older than the newest of
// `steps` and not among them, and what was set aside. Throws no StoreError.
Pruned prune_all_but(const std::filesystem::path& run, const std::vector<Step>& steps);

}  // namespace strait::store
