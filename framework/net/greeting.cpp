#include "framework/net/greeting.h"

#include <fmt/format.h>

namespace strait::net {

GreetingVerdict judge_greeting(const GreetingSelf& self, const RunId& run, std::uint32_t generation,
                               const Hello& theirs) {
  using Kind = LinkError::Kind;
  const std::string us = self.hello.name.describe();
  const std::string them = theirs.name.describe();
  GreetingVerdict verdict;
  if (run != self.run) {
    verdict.tell_peer = LinkError(
        Kind::refused,
        fmt::format("{}: {} belongs to run {}, {} to run {}; an old process or a wrong address",
                    self.link, us, self.run.hex(), them, run.hex()));
  } else if (generation < self.generation) {
    verdict.tell_peer = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, them, generation, self.generation));
  } else if (generation > self.generation) {
    verdict.die = LinkError(
        Kind::fenced, fmt::format("{}: {} is of generation {}, but the run is at generation {}; it "
                                  "was restarted without this process",
                                  self.link, us, self.generation, generation));
  } else if (theirs.name != self.peer) {
    verdict.tell_peer = LinkError(
        Kind::refused,
        fmt::format("{}: {} expects {} here, not {}", self.link, us, self.peer.describe(), them));
  } else if (self.hello.peer_life != 0 && theirs.life != self.hello.peer_life) {
    verdict.die = LinkError(
        Kind::lost, fmt::format("{}: {} was started anew and knows nothing of what was sent to it",
                                self.link, them));
    verdict.tell_peer = verdict.die;
  } else if (theirs.peer_life != 0 && theirs.peer_life != self.hello.life) {
    verdict.tell_peer = LinkError(
        Kind::lost, fmt::format("{}: {} was started anew and knows nothing of what was sent to it",
                                self.link, us));
  } else if (const auto words = disagreement(theirs, self.hello)) {
    verdict.die = LinkError(Kind::refused,
                            fmt::format("{}: {}; both must be started from the same plan and build",
                                        self.link, *words));
    verdict.tell_peer = verdict.die;
  }
  return verdict;
}

}  // namespace strait::net
