#include "launcher/base/byte_text.h"

#include <fmt/format.h>

namespace strait::base {

std::string byte_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000) return fmt::format("{} B", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

}  // namespace strait::base
