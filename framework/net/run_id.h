#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "framework/fields/fields.h"

namespace strait::net {

// The random 128-bit name of one run. Processes of different runs never talk to each other.
struct RunId {
  std::array<std::byte, 16> bytes{};

  static RunId random();                                       // from the kernel's generator
  static std::optional<RunId> parse(std::string_view digits);  // 32 hexadecimal digits
  std::string hex() const;

  bool operator==(const RunId&) const = default;
};

}  // namespace strait::net

template <>
inline constexpr strait::fields::TextForm<strait::net::RunId>
    strait::fields::kTextForm<strait::net::RunId> = {"a run id of 32 hex digits", &net::RunId::hex,
                                                     &net::RunId::parse};
