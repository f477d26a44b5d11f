#include "kernels/token_header.h"

#include <algorithm>

#include "kernels/group_rules.h"
#include "kernels/half_bits.h"

namespace strait::kernels {

int write_token_header(const std::uint16_t* scale_codes, const GroupFormat& format,
                       std::int64_t width, std::uint8_t* out) {
  const std::int64_t groups = groups_of(format, width);
  int top = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (scale_codes[g] != kRefusedScaleCode) top = std::max(top, (scale_codes[g] & ~kTurned) >> 3);
  }
  out[0] = static_cast<std::uint8_t>(top);
  for (std::int64_t g = 0; g < groups; ++g) out[1 + g] = scale_byte(scale_codes[g], top);
  if (!format.rotate) return top;
  std::uint8_t* const flags = out + flags_offset(groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    const unsigned earlier = g % 8 == 0 ? 0U : flags[g / 8];
    const unsigned turned = (scale_codes[g] & kTurned) != 0 ? 1U : 0U;
    flags[g / 8] = static_cast<std::uint8_t>(earlier | turned << (g % 8));
  }
  return top;
}

std::int64_t refused_groups(const std::uint8_t* token, std::int64_t groups) {
  return std::count(token + 1, token + 1 + groups, kRefusedGroup);
}

bool is_turned(const std::uint8_t* token, const GroupFormat& format, std::int64_t groups,
               std::int64_t group) {
  if (!format.rotate) return false;
  return ((token[flags_offset(groups) + group / 8] >> (group % 8)) & 1) != 0;
}

template <class T>
void write_refusals(const std::uint8_t* token, const GroupFormat& format, std::int64_t width,
                    T* values) {
  const std::int64_t groups = groups_of(format, width);
  for (std::int64_t g = 0; g < groups; ++g) {
    if (token[1 + g] != kRefusedGroup) continue;
    const std::int64_t end = std::min(width, (g + 1) * format.group);
    std::fill(values + g * format.group, values + end, refused_value<T>());
  }
}

template void write_refusals(const std::uint8_t*, const GroupFormat&, std::int64_t, float*);
template void write_refusals(const std::uint8_t*, const GroupFormat&, std::int64_t, Bfloat16*);
template void write_refusals(const std::uint8_t*, const GroupFormat&, std::int64_t, Float16*);

}  // namespace strait::kernels
