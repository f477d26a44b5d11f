#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace strait::launcher {

// A word from another terminal to the launcher of a live run: go on without this replica. It is a
// file in the run's directory, which the launcher looks for and takes away.
void ask_to_leave(const std::filesystem::path& run, std::uint32_t replica);

// Who was asked to leave since this was last called, ascending.
std::vector<std::uint32_t> take_leave_requests(const std::filesystem::path& run);

}  // namespace strait::launcher
