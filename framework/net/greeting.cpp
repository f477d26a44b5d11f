#include "framework/net/greeting.h"

#include <fmt/format.h>

namespace strait::net {

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
        fmt::format("{}: {} has restarted and lost the state of this link", self.link, them));
    outcome.refusal = outcome.fatal;
  } else if (theirs.peer_incarnation != 0 && theirs.peer_incarnation != self.hello.incarnation) {
    outcome.refusal = LinkError(
        Kind::lost,
        fmt::format("{}: {} has restarted and lost the state of this link", self.link, us));
  } else if (const auto words = disagreement(theirs, self.hello)) {
    outcome.fatal = LinkError(
        Kind::refused, fmt::format("{}: {}; both must be started from the same plan and build",
                                   self.link, *words));
    outcome.refusal = outcome.fatal;
  }
  return outcome;
}

}  // namespace strait::net
