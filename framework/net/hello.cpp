#include "framework/net/hello.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/fields/byte_fields.h"

namespace strait::net {
namespace {

// Bounds the work for a hello of a peer that has only proved its key.
constexpr std::size_t kMaxTerms = 1000;

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

void describe(auto& f, fields::Is<Hello> auto& m) {
  f("stage", m.name.stage), f("replica", m.name.replica), f("incarnation", m.incarnation);
  f("peer_incarnation", m.peer_incarnation), f("fragment_bytes", m.fragment_bytes);
  f("terms", fields::at_most(m.terms, kMaxTerms));
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  return fields::to_bytes<std::vector<std::byte>>(hello);
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  try {
    return fields::from_bytes<Hello>(bytes, "hello");
  } catch (const fields::MessageError&) {
    return std::nullopt;  // the link refuses the peer, whatever is wrong
  }
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
