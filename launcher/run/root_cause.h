#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/net/process_name.h"
#include "launcher/base/errors.h"

namespace strait::run {

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
