#include "framework/net/process_name.h"

#include <fmt/format.h>

#include <charconv>

namespace strait::net {
namespace {

constexpr std::string_view kCoordinatorText = "coordinator";
constexpr std::string_view kHostAgentText = "agent.";

std::optional<std::uint32_t> parse_index(std::string_view digits) {
  std::uint32_t index = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return index;
}

}  // namespace

std::string ProcessName::text() const {
  if (*this == coordinator()) return std::string(kCoordinatorText);
  if (is_host_agent()) return fmt::format("{}{}", kHostAgentText, replica);
  return fmt::format("{}.{}", stage, replica);
}

std::string ProcessName::describe() const {
  if (*this == coordinator()) return "the coordinator";
  if (is_host_agent()) return fmt::format("host agent {}", replica);
  return fmt::format("stage {}.{}", stage, replica);
}

std::optional<ProcessName> ProcessName::parse(std::string_view text) {
  if (text == kCoordinatorText) return coordinator();
  if (text.starts_with(kHostAgentText)) {
    const auto index = parse_index(text.substr(kHostAgentText.size()));
    return index ? std::optional(host_agent(*index)) : std::nullopt;
  }
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto stage = parse_index(text.substr(0, dot));
  const auto replica = parse_index(text.substr(dot + 1));
  if (!stage || !replica) return std::nullopt;
  return ProcessName{*stage, *replica};
}

}  // namespace strait::net
