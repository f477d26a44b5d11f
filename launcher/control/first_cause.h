#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "framework/net/process_name.h"
#include "launcher/base/errors.h"

namespace strait::control {

// Something that went wrong with one process, or (nobody) with the launcher itself.
struct Finding {
  std::optional<net::ProcessName> process;
  base::ExitCode code = base::ExitCode::internal;
  std::string sentence;
  // A neighbour that lost its peer tells the truth, but of an effect. It counts as the cause only
  // as long as nothing better is known.
  bool effect = false;
};

// Of everything that goes wrong when a run breaks, the one thing that broke it. Messages overtake
// each other: the neighbours often cry before the death itself is seen. Pure.
class FirstCause {
 public:
  // True when this is now the cause.
  bool add(const Finding& finding);

  const std::optional<Finding>& cause() const { return cause_; }
  std::vector<std::string> followers() const;

 private:
  std::optional<Finding> cause_;
  std::vector<Finding> followers_;  // at most one for each process
};

}  // namespace strait::control
