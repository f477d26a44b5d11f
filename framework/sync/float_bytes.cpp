#include "framework/sync/float_bytes.h"

#include <fmt/format.h>

#include <cstring>

#include "framework/sync/bfloat16.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {

std::size_t float_bytes(std::size_t count, bool narrow) {
  return count * (narrow ? sizeof(std::uint16_t) : sizeof(float));
}

void append_floats(std::span<const float> values, bool narrow, net::Frame& out) {
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
  throw SyncError(SyncError::Kind::corrupt,
                  fmt::format("{} came in {} bytes where {} values take {}", what, bytes.size(),
                              count, float_bytes(count, narrow)));
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

}  // namespace strait::sync
