#pragma once

#include <cstdint>

#include "framework/sync/round.h"
#include "framework/sync/slots.h"

namespace strait::sync {

// Lands a round part by part over all of the stage's threads. Parts know nothing of each other, so
// any number of threads comes to the same bits. What lands must not throw: what others sent is
// looked at in arrived(), before anything changes.
template <class LandPart>
void land_parts(const Round& round, const Slots& slots, const LandPart& land_part) {
  slots.spread(static_cast<std::int64_t>(round.parts.size()),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   land_part(round.parts[static_cast<std::size_t>(i)]);
                 }
               });
}

}  // namespace strait::sync
