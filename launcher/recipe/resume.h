#pragma once

#include "framework/store/manifest.h"
#include "launcher/recipe/plan.h"

// Decides what a resumed run restores from a checkpoint. It depends on the manifest and the plan
// only, so that all processes decide the same. All functions are pure.
namespace strait::plan {

// ---- activation caches

// Whether the activation caches of the boundaries are restored. Both ends of a link compare
// `generation` when they connect; it is incremented whenever the caches are dropped.
struct CacheResume {
  bool restore = false;
  std::int64_t generation = 0;
  std::string dropped;  // a sentence with the reason; empty: nothing is dropped
};

// Describes the activation caches that a checkpoint of this plan contains: boundaries, their
// layers, limits. Another run can restore them only if its text is equal. Empty: no caches are
// saved. The manifest keeps it in its notes under kCachesNote.
std::string saved_caches(const Plan& plan);
inline constexpr const char* kCachesNote = "caches";

// `plan`: the plan of the run that resumes.
CacheResume decide_caches(const store::Manifest& checkpoint, const Plan& plan);

// ---- state of replicas

// Whether every replica restores its own state, and the run continues with the same bits as one
// that was not interrupted. Otherwise all replicas start from the agreed model.
struct SyncResume {
  bool exact = true;
  std::string restarted;  // a sentence with the reason; empty: the resume is exact
};

// Describes the replicas of a checkpoint of this plan, for the manifest: method, settings,
// replicas, layers. A run can resume exactly only if its description is equal. Empty with one
// replica.
std::map<std::string, std::string> saved_sync(const Plan& plan);

// Marks in a manifest, whose files are known, that only some replicas wrote the checkpoint. No run
// resumes exactly from it.
void mark_missing_replicas(store::Manifest& checkpoint, const Plan& plan);

// `plan`: the plan of the run that resumes. `without`: replicas that it starts without.
SyncResume decide_sync(const store::Manifest& checkpoint, const Plan& plan,
                       const std::set<std::uint32_t>& without = {});

}  // namespace strait::plan
