#include "framework/net/curve_keys.h"

#include <zmq.h>

#include <array>
#include <cstdint>

#include "framework/net/link_error.h"

namespace strait::net {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kKeyCharacters = 40;  // Z85: five for four bytes

[[noreturn]] void throw_without_curve() {
  throw LinkError(LinkError::Kind::unusable,
                  "this libzmq was built without CURVE and cannot encrypt; install the "
                  "distribution's libzmq, or set the links to plaintext on a private network");
}

}  // namespace

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
