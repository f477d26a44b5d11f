#pragma once

#include <string>
#include <vector>

#include "launcher/process/backend.h"
#include "launcher/user_error.h"

// What we say to the system's ssh, and what it means when it fails. Pure.
namespace strait::launcher {

// One constant command for every host and run; all that varies goes over stdin, where no shell
// reads it.
inline constexpr const char* kKeeperCommand = R"(exec "$HOME"/.strait/bin/strait-stage --keep)";

// argv of a call; `config` instead of the user's own ssh configuration, empty: that one.
std::vector<std::string> ssh_argv(const std::string& host, const std::string& config,
                                  const std::string& command);

// Why a call did not come about: who, what, and the fix, in one sentence. `errors` is what ssh and
// the far side said on stderr.
UserError ssh_failure(const std::string& host, const std::string& config, const ExitStatus& status,
                      const std::string& errors);

// "ssh -F hosts.config h0", as the user would type it.
std::string ssh_by_hand(const std::string& host, const std::string& config);

}  // namespace strait::launcher
