#include "framework/sync/finite_floats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/sync/float_bytes.h"
#include "framework/sync/sync_error.h"
#include "framework/sync/within.h"

namespace strait::sync {

void read_finite_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                        const char* what) {
  read_floats(bytes, narrow, to, what);
  bool finite = true;
  for (const float value : to) finite &= std::isfinite(value);
  if (finite) return;
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("{} holds values that are infinite or no numbers", what));
}

std::vector<float> mean_of_finite_floats(Told told, bool narrow, std::size_t count,
                                         const char* what) {
  std::vector<float> mean(count);
  std::vector<float> theirs(count);
  for (const std::span<const std::byte> bytes : told) {
    read_finite_floats(bytes, narrow, theirs, what);
    for (std::size_t i = 0; i < count; ++i) mean[i] += theirs[i];
  }
  for (float& value : mean) value /= static_cast<float>(told.size());
  return mean;
}

void take_agreed_floats(const Round& round, std::span<float> slot, const char* what) {
  const std::vector<net::Frame>& agreed = round.exchanges.back().agreed;
  for (const bool for_real : {false, true}) {
    for (const Part& part : round.parts) {
      std::vector<float> values(static_cast<std::size_t>(part.range.count()));
      read_finite_floats(agreed[part.index], false, values, what);
      if (for_real) std::ranges::copy(values, within(slot, part.range).begin());
    }
  }
}

}  // namespace strait::sync
