#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"

namespace strait::plan {

// Whether a resumed run gives every replica its own state back, and so goes on with the bits of one
// that was never stopped. Otherwise all replicas start from the agreed model.
struct SyncResume {
  bool exact = true;
  std::string restarted;  // a sentence that says why; empty: it is exact
};

// What a checkpoint of this plan says of its replicas, for the manifest: equal only where a run of
// one plan can go on exactly with the other's checkpoint. Empty for one replica.
std::map<std::string, std::string> sync_kept(const Plan& plan);

// Says in the manifest of a checkpoint which replicas wrote it, where not all were left: nobody can
// go on exactly from that. Its files are known.
void note_who_is_left(store::Manifest& checkpoint, const Plan& plan);

// Pure. `plan` is that of the run that goes on, with all replicas or `without` some.
SyncResume decide_sync(const store::Manifest& checkpoint, const Plan& plan,
                       const std::set<std::uint32_t>& without = {});

}  // namespace strait::plan
