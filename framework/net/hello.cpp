#include "framework/net/hello.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/bytes.h"

namespace strait::net {
namespace {

// Bounds the work for a hello of a peer that has only proved its key.
constexpr std::uint32_t kMaxTerms = 1000;

const std::string* find_term(const Terms& terms, const std::string& key) {
  const auto found =
      std::find_if(terms.begin(), terms.end(), [&](const auto& term) { return term.first == key; });
  return found == terms.end() ? nullptr : &found->second;
}

std::string has_term(const Hello& hello, const std::string& key, const std::string* value) {
  if (value == nullptr) return fmt::format("{} has no {}", hello.name.describe(), key);
  return fmt::format("{} has {} = \"{}\"", hello.name.describe(), key, *value);
}

}  // namespace

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> bytes;
  append_value(bytes, hello.name.stage);
  append_value(bytes, hello.name.replica);
  append_value(bytes, hello.incarnation);
  append_value(bytes, hello.peer_incarnation);
  append_value(bytes, hello.fragment_bytes);
  append_value(bytes, static_cast<std::uint32_t>(hello.terms.size()));
  for (const auto& [key, value] : hello.terms) {
    append_text(bytes, key);
    append_text(bytes, value);
  }
  return bytes;
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Hello hello;
  hello.name.stage = reader.value<std::uint32_t>();
  hello.name.replica = reader.value<std::uint32_t>();
  hello.incarnation = reader.value<std::uint64_t>();
  hello.peer_incarnation = reader.value<std::uint64_t>();
  hello.fragment_bytes = reader.value<std::uint64_t>();
  const auto terms = reader.value<std::uint32_t>();
  if (terms > kMaxTerms) return std::nullopt;
  for (std::uint32_t i = 0; i < terms && !reader.failed(); ++i) {
    std::string key = reader.text();
    std::string value = reader.text();
    hello.terms.emplace_back(std::move(key), std::move(value));
  }
  if (!reader.complete()) return std::nullopt;
  return hello;
}

// The keys of both, in the order of the first, so that both ends name the same disagreement.
std::optional<std::string> disagreement(const Hello& one, const Hello& other) {
  std::vector<std::string> keys;
  for (const auto& term : one.terms) keys.push_back(term.first);
  for (const auto& term : other.terms) {
    if (find_term(one.terms, term.first) == nullptr) keys.push_back(term.first);
  }
  for (const std::string& key : keys) {
    const std::string* ours = find_term(one.terms, key);
    const std::string* theirs = find_term(other.terms, key);
    if (ours != nullptr && theirs != nullptr && *ours == *theirs) continue;
    return fmt::format("{}, {}", has_term(one, key, ours), has_term(other, key, theirs));
  }
  return std::nullopt;
}

}  // namespace strait::net
