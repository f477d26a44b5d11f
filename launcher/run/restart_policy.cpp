#include "launcher/run/restart_policy.h"

#include <algorithm>

namespace strait::run {
namespace {

constexpr std::int64_t kDefaultLimit = 3;
constexpr std::chrono::milliseconds kFirstDelay{1'000};  // of the second restart in a row
constexpr std::chrono::milliseconds kLongestDelay{10'000};

// Failures that another start may not meet again.
bool may_pass(base::ExitCode code) {
  switch (code) {
    case base::ExitCode::peer_lost:
    case base::ExitCode::stalled:
    case base::ExitCode::internal:    // a process that crashed
    case base::ExitCode::storage_io:  // a file server that was away for a moment
      return true;
    case base::ExitCode::done:
    case base::ExitCode::bad_input:
    case base::ExitCode::mismatch:
    case base::ExitCode::authentication:
    case base::ExitCode::fenced:
    case base::ExitCode::storage_full:
    case base::ExitCode::corrupt:
    case base::ExitCode::numeric:
    case base::ExitCode::out_of_memory:
    case base::ExitCode::interrupted:
      break;
  }
  return false;
}

// The first restart begins at once: most losses do not repeat.
std::chrono::milliseconds delay_before(std::int64_t number) {
  if (number <= 1) return std::chrono::milliseconds(0);
  auto delay = kFirstDelay;
  for (std::int64_t i = 2; i < number && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

}  // namespace

std::int64_t restart_limit(const recipe::Recipe::Hosts& hosts) {
  return hosts.restart.value_or(hosts.backend == recipe::BackendKind::local ? 0 : kDefaultLimit);
}

RestartPolicy::Decision RestartPolicy::after(const Outcome& outcome,
                                             std::optional<store::Step> newest) {
  // An older checkpoint counts, too: the run may have been resumed from an earlier one.
  const bool saved = outcome.checkpoint.has_value();
  if (!first_ || newest > newest_ || saved) {
    first_ = outcome;
    newest_ = newest;
    in_row_ = 0;
  }
  Decision decision;
  if (outcome.stopped || !may_pass(outcome.code) || limit_ == 0) return decision;
  decision.exhausted = in_row_ >= limit_;
  decision.restart = !decision.exhausted;
  if (!decision.restart) return decision;
  decision.number = ++in_row_;
  decision.delay = delay_before(in_row_);
  return decision;
}

}  // namespace strait::run
