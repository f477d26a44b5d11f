#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/net/process_name.h"
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
  bool trained = false;                     // training was reached, so its changes were applied
  store::Step step{};                       // updates made by all processes
  std::optional<store::Step> checkpoint;    // newest one committed by this launch
  std::set<std::uint32_t> joined;           // replicas that joined during training
  std::set<std::string> left;               // hosts whose user asked them to leave
};

nlohmann::ordered_json to_json(const Outcome& outcome);

}  // namespace strait::run
