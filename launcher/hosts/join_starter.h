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

// For whoever has to carry the tokens: where they will lie, and what to do with them.
std::vector<std::string> join_instructions(const plan::Plan& plan, const std::filesystem::path& run);

// The way to hosts that nobody here can start anything on: each gets a token, a file that only its
// owner can read. Somebody carries it there and runs `strait-stage --join` on it; the host then
// dials out to us. The files go with the calls: a token is good for one start of the run only.
std::vector<std::unique_ptr<AgentStarter>> join_starters(const plan::Plan& plan,
                                                  const std::filesystem::path& run);

}  // namespace strait::hosts
