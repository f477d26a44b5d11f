#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strait::net {

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
