#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "framework/fields/fields.h"

namespace strait::net {

// The name of a process in its run: (stage, replica), the coordinator, or a host agent, which
// starts processes on its host. Never a rank.
struct ProcessName {
  std::uint32_t stage = 0;
  std::uint32_t replica = 0;

  static constexpr ProcessName coordinator() {
    constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
    return {kNone, kNone};
  }

  static constexpr ProcessName host_agent(std::uint32_t index) {
    return {std::numeric_limits<std::uint32_t>::max() - 1, index};
  }
  bool is_host_agent() const { return stage == host_agent(0).stage; }

  std::string text() const;      // "1.0", "coordinator", "agent.2": in keys, ids and file names
  std::string describe() const;  // "stage 1.0", "the coordinator": in sentences
  static std::optional<ProcessName> parse(std::string_view text);

  auto operator<=>(const ProcessName&) const = default;
};

}  // namespace strait::net

template <>
inline constexpr strait::fields::TextForm<strait::net::ProcessName>
    strait::fields::kTextForm<strait::net::ProcessName> = {
        "the name of a process", &net::ProcessName::text, &net::ProcessName::parse};
