#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/net/process_name.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"

namespace strait::control {

// How a run ended, for people, status.json and the exit code.
struct Outcome {
  base::ExitCode code = base::ExitCode::done;
  std::string cause;                        // the first cause, one sentence; empty when done
  std::optional<net::ProcessName> culprit;  // nobody: it was the launcher itself
  std::string host;                         // the culprit's
  std::vector<std::string> log_tail;        // the culprit's last lines
  std::vector<std::string> followers;       // what happened because of it, a sentence each
  bool stopped = false;                     // somebody asked for it
  store::Step step{};                       // updates made by all
  std::optional<store::Step> checkpoint;    // the newest one committed by this launch
};

nlohmann::ordered_json to_json(const Outcome& outcome);

}  // namespace strait::control
