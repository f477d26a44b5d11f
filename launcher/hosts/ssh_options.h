#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/process/backend.h"
#include "launcher/base/errors.h"

// What we say to the system's ssh, and what it means when it fails. Pure.
namespace strait::hosts {

// One constant command for every host and run; all that varies goes over stdin, where no shell
// reads it.
inline constexpr const char* kAgentCommand = R"(exec "$HOME"/.strait/bin/strait-stage --keep)";

// What ssh says on stdout, before the host's shell says anything, once the login is through.
inline constexpr const char* kLoggedIn = "strait-ssh-logged-in";

// Without a sign of life for so long ssh gives up: on a host that everybody else waits for, and on
// one that a slow wire is full of what we send it.
inline constexpr std::chrono::seconds kCallSilence{6};
inline constexpr std::chrono::seconds kTransferSilence{20};

// argv of a call; `config` instead of the user's own ssh configuration, empty: that one.
std::vector<std::string> ssh_argv(const std::string& host, const std::string& config,
                                  const std::string& command, std::chrono::seconds silence);

// Why a call did not come about: who, what, and the fix, in one sentence. `errors` is what ssh and
// the far side said on stderr.
base::UserError ssh_failure(const std::string& host, const std::string& config, const process::ExitStatus& status,
                      const std::string& errors);

// "ssh -F hosts.config h0", as the user would type it.
std::string ssh_by_hand(const std::string& host, const std::string& config);

}  // namespace strait::hosts
