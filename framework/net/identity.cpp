#include "framework/net/identity.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <zmq.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "framework/net/link_error.h"

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

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kKeyCharacters = 40;  // Z85: five for four bytes

[[noreturn]] void throw_without_curve() {
  throw LinkError(LinkError::Kind::unusable,
                  "this libzmq was built without CURVE and cannot encrypt; install the "
                  "distribution's libzmq, or set the links to plaintext on a private network");
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

CurveKeyPair CurveKeyPair::generate() {
  std::array<char, kKeyCharacters + 1> public_key{};
  std::array<char, kKeyCharacters + 1> secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) throw_without_curve();
  return {public_key.data(), secret_key.data()};
}

CurveKeyPair CurveKeyPair::of_secret(std::span<const std::uint8_t, 32> secret) {
  std::array<char, kKeyCharacters + 1> public_key{};
  std::array<char, kKeyCharacters + 1> secret_key{};
  zmq_z85_encode(secret_key.data(), secret.data(), secret.size());
  if (zmq_curve_public(public_key.data(), secret_key.data()) != 0) throw_without_curve();
  return {public_key.data(), secret_key.data()};
}

bool is_curve_key(std::string_view text) {
  if (text.size() != kKeyCharacters) return false;
  std::array<std::uint8_t, kKeyBytes> bytes{};
  return zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr;
}

}  // namespace strait::net
