#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace strait::control {

// A word from another terminal to the launcher of a live run: go on without this replica, or bring
// it back. It is a file in the run's directory, which the launcher looks for and takes away.
enum class ReplicaRequest : std::uint8_t { leave, come_back };

void ask_of_replica(ReplicaRequest request, const std::filesystem::path& run,
                    std::uint32_t replica);

// Of whom that was asked since this was last called, ascending.
std::vector<std::uint32_t> take_requests(ReplicaRequest request, const std::filesystem::path& run);

}  // namespace strait::control
