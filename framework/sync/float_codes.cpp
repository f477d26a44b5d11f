#include "framework/sync/float_codes.h"

#include <cmath>
#include <cstring>

#include "framework/sync/sync_error.h"

namespace strait::sync {

std::size_t float_bytes(std::size_t count, bool narrow) {
  return count * (narrow ? sizeof(std::uint16_t) : sizeof(float));
}

void append_floats(std::span<const float> values, bool narrow, net::Frame& out) {
  // memcpy must not get the null pointer of an empty span.
  if (values.empty()) return;
  const std::size_t at = out.size();
  out.resize(at + float_bytes(values.size(), narrow));
  std::byte* to = out.data() + at;
  if (!narrow) {
    std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const std::uint16_t bits = to_bfloat16(value);
    std::memcpy(to, &bits, sizeof bits);
    to += sizeof bits;
  }
}

void check_floats(std::span<const std::byte> bytes, std::size_t count, bool narrow,
                  const char* what) {
  if (bytes.size() == float_bytes(count, narrow)) return;
  throw SyncError(SyncError::Kind::corrupt, "{} has {} bytes; {} values take {}", what,
                  bytes.size(), count, float_bytes(count, narrow));
}

void read_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                 const char* what) {
  check_floats(bytes, to.size(), narrow, what);
  if (to.empty()) return;
  if (!narrow) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
    return;
  }
  const std::byte* from = bytes.data();
  for (float& value : to) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    value = from_bfloat16(bits);
    from += sizeof bits;
  }
}

void read_finite_floats(std::span<const std::byte> bytes, bool narrow, std::span<float> to,
                        const char* what) {
  read_floats(bytes, narrow, to, what);
  // Without an early exit, so that the loop is vectorised; malformed values are rare.
  bool finite = true;
  for (const float value : to) finite &= std::isfinite(value);
  if (finite) return;
  throw SyncError(SyncError::Kind::corrupt, "{} has values that are infinite or NaN", what);
}

void check_finite_floats(std::span<const std::byte> bytes, bool narrow, std::size_t count,
                         const char* what) {
  std::vector<float> values(count);
  read_finite_floats(bytes, narrow, values, what);
}

std::vector<float> mean_of_finite_floats(Contributions contributions, bool narrow,
                                         std::size_t count, const char* what,
                                         std::span<const float> shares) {
  return mean_of(contributions, count, shares, [&](auto bytes, std::span<float> to) {
    read_finite_floats(bytes, narrow, to, what);
  });
}

void apply_floats(const Round& round, bool narrow, Slots& slots, std::string_view slot,
                  const char* what) {
  const std::span<float> values = slots.values(slot);
  apply_parts(round, slots, [&](const Part& part) {
    read_floats(round.result(part), narrow, within(values, part.range), what);
  });
}

}  // namespace strait::sync
