#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <vector>

#include "framework/net/identity.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"

namespace strait::run {

// How a run ended: for the console, status.json and the exit code.
struct Outcome {
  base::ExitCode code = base::ExitCode::done;
  std::string cause;                        // root cause, one sentence; empty: no failure
  std::optional<net::ProcessName> culprit;  // failed process; empty: the launcher
  std::string host;                         // of the failed process, or the host that left
  std::vector<std::string> log_tail;        // last lines of its log
  std::vector<std::string> followers;       // failures that followed, one sentence each
  bool stopped = false;                     // on the user's request, before its last step
  std::string early;                        // why train.stop_when has ended it; empty: it has not
  bool trained = false;                     // training was reached, so its changes were applied
  store::Step step{};                       // updates made by all processes
  std::optional<store::Step> checkpoint;    // newest one committed by this launch
  std::set<std::uint32_t> joined;           // replicas that joined during training
  std::set<std::string> left;               // hosts whose user asked them to leave
};

nlohmann::ordered_json to_json(const Outcome& outcome);

// A failure of one process, or (without a process) of the launcher itself.
struct Finding {
  std::optional<net::ProcessName> process;
  base::ExitCode code = base::ExitCode::internal;
  // One sentence for users.
  std::string sentence;
  // True for a process that lost its peer: its report is true, but the cause is the peer's failure.
  // It counts as the cause only as long as no better finding is known.
  bool effect = false;
};

// Picks the root cause from all findings of a failed run. The order of arrival does not show it,
// because peers often report a lost link before the exit of the process is noticed. Pure.
class RootCause {
 public:
  // True if this finding is now the cause.
  bool add(const Finding& finding);

  const std::optional<Finding>& cause() const { return cause_; }
  std::vector<std::string> followers() const;

 private:
  std::optional<Finding> cause_;
  std::vector<Finding> followers_;  // at most one per process
};

}  // namespace strait::run
