#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/agent_starter.h"
#include "launcher/plan/plan.h"

namespace strait::hosts {

// Where the launcher puts the token of a host: <run>/join/<host>.token.
std::filesystem::path token_file(const std::filesystem::path& run, std::size_t host);

// Instructions for the user: where the tokens will be, and how to use them.
std::vector<std::string> join_instructions(const plan::Plan& plan,
                                           const std::filesystem::path& run);

// For hosts on which the launcher cannot start anything: writes a token for each, a file that only
// its owner can read. A person copies it there and runs `strait-stage --join`; the agent connects
// to the launcher. A token is valid for one start of the run, so the files are removed with the
// starters.
std::vector<std::unique_ptr<AgentStarter>> join_starters(const plan::Plan& plan,
                                                         const std::filesystem::path& run);

}  // namespace strait::hosts
