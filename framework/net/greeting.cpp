#include "framework/net/greeting.h"

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

GreetingResult judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                              const Hello& theirs) {
  using Kind = LinkError::Kind;
  const std::string us = self.hello.name.describe();
  const std::string them = theirs.name.describe();
  GreetingResult outcome;
  // Run and generation come first: an older process has other terms too, but its age is the cause.
  if (run != self.run) {
    outcome.refusal = LinkError(
        Kind::refused,
        fmt::format("{}: {} belongs to run {}, {} to run {}; an old process or a wrong address",
                    self.link, us, self.run.hex(), them, run.hex()));
  } else if (generation < self.generation) {
    outcome.refusal = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, them, generation, self.generation));
  } else if (generation > self.generation) {
    outcome.fatal = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, us, self.generation, generation));
  } else if (theirs.name != self.peer) {
    outcome.refusal = LinkError(
        Kind::refused,
        fmt::format("{}: {} expects {} here, not {}", self.link, us, self.peer.describe(), them));
  } else if (self.hello.peer_incarnation != 0 &&
             theirs.incarnation != self.hello.peer_incarnation) {
    outcome.fatal = LinkError(
        Kind::lost,
        fmt::format("{}: {} has restarted or was started twice, and the state of this link is lost",
                    self.link, them));
    outcome.refusal = outcome.fatal;
  } else if (theirs.peer_incarnation != 0 && theirs.peer_incarnation != self.hello.incarnation) {
    outcome.refusal = LinkError(
        Kind::lost,
        fmt::format("{}: {} has restarted or was started twice, and the state of this link is lost",
                    self.link, us));
  } else if (const auto words = disagreement(theirs, self.hello)) {
    outcome.fatal = LinkError(
        Kind::refused, fmt::format("{}: {}; both must be started from the same plan and build",
                                   self.link, *words));
    outcome.refusal = outcome.fatal;
  }
  return outcome;
}

}  // namespace strait::net
