#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/backend.h"
#include "launcher/base/errors.h"

// The command line of the system's ssh, and what its errors mean. Pure.
namespace strait::hosts {

// The same command for every host and run. Everything else goes over stdin, where no shell expands
// it.
inline constexpr const char* kAgentCommand = R"(exec "$HOME"/.strait/bin/strait-stage --agent)";

// ssh prints this on stdout after the login and before the host's shell prints anything.
inline constexpr const char* kLoggedIn = "strait-ssh-logged-in";

// ssh disconnects after this time without an answer. The time is short while other hosts wait, and
// longer while our own data fills a slow link.
inline constexpr std::chrono::seconds kCallSilence{6};
inline constexpr std::chrono::seconds kTransferSilence{20};

// argv of a call. `config`: a file for ssh -F; empty: the user's own configuration.
std::vector<std::string> ssh_argv(const std::string& host, const std::string& config,
                                  const std::string& command, std::chrono::seconds silence);

// The error of a failed call, with the host and the fix. `errors`: stderr of ssh and of the remote
// program.
base::UserError ssh_failure(const std::string& host, const std::string& config,
                            const base::ExitStatus& status, const std::string& errors);

// "ssh -F hosts.config h0", as the user would type it.
std::string ssh_by_hand(const std::string& host, const std::string& config);

}  // namespace strait::hosts
