#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <span>

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

// The random 128-bit name of one run. Processes of different runs never talk to each other.
struct RunId {
  std::array<std::byte, 16> bytes{};

  static RunId random();                                       // from the kernel's generator
  static std::optional<RunId> parse(std::string_view digits);  // 32 hexadecimal digits
  std::string hex() const;

  bool operator==(const RunId&) const = default;
};

// The CURVE key pair by which a process proves its identity; both halves as 40 characters of Z85.
// The launcher makes one per process and run. The secret half travels over stdin only: never in
// argv, the environment or a log.
struct CurveKeyPair {
  std::string public_key;
  std::string secret_key;

  static CurveKeyPair generate();
  // The pair with this secret half, which may be any random bytes.
  static CurveKeyPair of_secret(std::span<const std::uint8_t, 32> secret);
};

// Whether the text has the form of a key. Does not say which process it belongs to.
bool is_curve_key(std::string_view text);

}  // namespace strait::net

template <>
inline constexpr strait::fields::TextForm<strait::net::ProcessName>
    strait::fields::kTextForm<strait::net::ProcessName> = {
        "the name of a process", &net::ProcessName::text, &net::ProcessName::parse};

template <>
inline constexpr strait::fields::TextForm<strait::net::RunId>
    strait::fields::kTextForm<strait::net::RunId> = {"a run id of 32 hex digits", &net::RunId::hex,
                                                     &net::RunId::parse};
