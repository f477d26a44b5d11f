#include "framework/sync/finite_floats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/sync/float_bytes.h"
#include "framework/sync/land_parts.h"
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

void check_finite_floats(std::span<const std::byte> bytes, bool narrow, std::size_t count,
                         const char* what) {
  std::vector<float> values(count);
  read_finite_floats(bytes, narrow, values, what);
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

void take_agreed_floats(const Round& round, Slots& slots, std::string_view slot, const char* what) {
  const std::vector<net::Frame>& agreed = round.exchanges.back().agreed;
  const std::span<float> values = slots.values(slot);
  land_parts(round, slots, [&](const Part& part) {
    read_floats(agreed[part.index], false, within(values, part.range), what);
  });
}

}  // namespace strait::sync
