#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace strait::net {

// Puts the check right again after a test has changed a message: an honest sender with odd ideas.
inline void reseal(std::vector<std::byte>& message) {
  const auto check =
      static_cast<std::uint32_t>(XXH3_64bits(message.data() + 8, message.size() - 8));
  std::memcpy(message.data() + 4, &check, sizeof check);
}

}  // namespace strait::net
