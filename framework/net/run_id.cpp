#include "framework/net/run_id.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <system_error>

namespace strait::net {

RunId RunId::random() {
  RunId run;
  // Signals never shorten a read of sixteen bytes; this fails only on a kernel without the call.
  if (getrandom(run.bytes.data(), run.bytes.size(), 0) != static_cast<ssize_t>(run.bytes.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom for a run id");
  }
  return run;
}

std::optional<RunId> RunId::parse(std::string_view digits) {
  RunId run;
  if (digits.size() != 2 * run.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < run.bytes.size(); ++i) {
    std::uint8_t value = 0;
    const char* first = digits.data() + 2 * i;
    const auto [stop, error] = std::from_chars(first, first + 2, value, 16);
    if (error != std::errc{} || stop != first + 2) return std::nullopt;
    run.bytes[i] = std::byte{value};
  }
  return run;
}

std::string RunId::hex() const {
  std::string digits;
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return digits;
}

}  // namespace strait::net
