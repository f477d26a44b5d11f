#include "framework/sync/finite_floats.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/sync/float_bytes.h"
#include "framework/sync/sync_error.h"

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

}  // namespace strait::sync
