#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/store/checkpoint_files.h"
#include "framework/store/manifest.h"
#include "framework/store/sample.h"

namespace strait::store {

// The protocol of `<run>/checkpoints/step-N/`. Every process writes its shard (durable under its
// name before it is reported), then one process commits: the manifest's rename is the moment from
// which the checkpoint exists. A directory without a valid manifest is not a checkpoint, whatever
// its name. A complete checkpoint is never written into. Functions without state; one process at a
// time commits and prunes.
//
// A disk that fails or refuses (EIO, ESTALE, EMFILE ...) says nothing about a checkpoint: what
// cannot be looked at is neither damaged nor uncommitted, and the call ends with StoreError
// storage_io before anything of it is passed over or removed.

std::filesystem::path checkpoint_directory(const std::filesystem::path& run, Step step);
// Takes back this process's own shard of a checkpoint that was given up: its bytes may be what the
// next one lacks. Nothing happens to a complete checkpoint.
void withdraw_shard(const std::filesystem::path& checkpoint, const std::string& name);
// Copies a shard, whole and durable, and compares it with what its manifest says. StoreError
// corrupt: it is damaged.
void copy_shard(const std::filesystem::path& from, const std::filesystem::path& to,
                const ShardFile& shard);

// Makes the checkpoint exist. `may_commit` is asked last before the rename and throws to forbid it:
// an old generation must not commit. Shards named in the manifest must be there with the size it
// says, unless they are kept elsewhere: then their writers have reported them durable, and the
// checkpoint can be used here once they have been fetched.
enum class Shards { here, elsewhere };
void commit_checkpoint(const std::filesystem::path& checkpoint, const Manifest& manifest,
                       const std::function<void()>& may_commit = {}, Shards shards = Shards::here);

// Whether the directory of a checkpoint has a manifest: it was complete once. StoreError: that
// cannot be seen; false only where the manifest is certainly absent.
bool is_committed(const std::filesystem::path& checkpoint);

// The manifest of a complete checkpoint: looks at nothing else, at the sizes of all shards, or at
// their hashes too (reads everything). StoreError corrupt names the file, what was expected and
// what is there.
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
  bool committed = false;  // there is a manifest: this one was complete once
};
struct CheckpointList {
  std::vector<Checkpoint> complete;  // newest first
  std::vector<Unusable> unusable;    // likewise: torn, damaged, of another build, being written
};
CheckpointList list_checkpoints(const std::filesystem::path& run, Verify verify = Verify::sizes,
                                Part part = Part::all);

// Where to resume: the newest checkpoint whose every byte is right. `warning` names both when a
// newer one had to be passed over because it is damaged or was never complete. StoreError corrupt
// when there are some but none is right, another kind when a newer one is good for another build or
// cannot be read now; nothing when there is none at all.
struct Resumable {
  Checkpoint checkpoint;
  std::string warning;
  std::string damage;  // what is wrong with newer ones that were complete once; empty: none is
};
std::optional<Resumable> choose_checkpoint(const std::filesystem::path& run, Part part = Part::all);

// All that were complete once, and those of which that cannot be seen now. Newest first.
std::vector<Step> committed_steps(const std::filesystem::path& run);

// Before going on from `step`: frees the place of every newer step-N. One that was committed, or
// of which that cannot be seen, moves aside (step-N.aside-K); one that never was has nothing to
// recover and is removed. On a host that holds some of a run's shards a manifest comes after the
// commit, if at all: there all move aside. Returns the new paths.
enum class Uncommitted { remove, set_aside };
std::vector<std::filesystem::path> set_aside_newer(const std::filesystem::path& run, Step step,
                                                   Uncommitted uncommitted = Uncommitted::remove);

// What a pruning did. What cannot be removed only takes room: the caller reports it and goes on,
// and the next pruning tries again.
struct Pruned {
  struct Left {
    std::filesystem::path path;
    std::string reason;  // one sentence
  };
  std::vector<std::filesystem::path> removed;
  std::vector<Left> left;
};

// The newest of these steps (newest first) whose weights are known to be good: those of step `good`
// and of all earlier steps are; nullopt: of none it is known.
std::optional<Step> newest_good(const std::vector<Step>& steps, std::optional<Step> good);

// Which complete checkpoints stay, of these (newest first): the `keep` newest, and the newest that
// is known to be good, so that it is never removed for one that is not. Pure; every pruning asks.
std::vector<Step> steps_to_keep(const std::vector<Step>& complete, std::int64_t keep,
                                std::optional<Step> good);

// The rule of what stays on a disk, called when a launch has loaded its checkpoint and after each
// commit; throws no StoreError. Kept are steps_to_keep() of the complete checkpoints (at least
// two). Removed are all other ones; damaged ones older than all that are kept, if these are `keep`;
// folders without manifest that are older than the newest complete one; in kept ones the files of
// strait that the manifest does not list; and what was set aside: at a start what is not newer than
// the newest complete one, after a commit all of it. No step-N that is newer than the newest
// complete one is touched. Complete is one of which `part` is here.
enum class PruneTime { at_start, after_commit };
struct PruneRule {
  std::int64_t keep = 2;
  std::optional<Step> good = {};  // as in newest_good()
  Part part = Part::all;
};
Pruned prune_checkpoints(const std::filesystem::path& run, const PruneRule& rule,
                         PruneTime time = PruneTime::after_commit);

// Where shards of a run lie on several hosts, none of them has a whole checkpoint: the committing
// process decides which ones stay. Removes every step-N that is older than the newest of `steps`
// and not among them, and what was set aside. Throws no StoreError.
Pruned prune_all_but(const std::filesystem::path& run, const std::vector<Step>& steps);

}  // namespace strait::store
