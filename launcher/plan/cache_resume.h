#pragma once

#include <cstdint>
#include <string>

#include "framework/store/manifest.h"
#include "launcher/plan/plan.h"

namespace strait::plan {

// Whether a resumed run goes on with what its boundaries remembered of samples. All processes must
// do the same: the generation is one more whenever that is dropped, and links agree on it.
struct CacheResume {
  bool restore = false;
  std::int64_t generation = 0;
  std::string dropped;  // a sentence that says why; empty: nothing is
};

// What a checkpoint of this plan remembers, in words that are equal only where another run could go
// on with it: boundaries, where they cut, limits. Empty where nothing is kept. It is in the
// manifest's notes under kCachesNote.
std::string caches_kept(const Plan& plan);
inline constexpr const char* kCachesNote = "caches";

// Pure. `plan` is that of the run that goes on.
CacheResume decide_caches(const store::Manifest& checkpoint, const Plan& plan);

}  // namespace strait::plan
