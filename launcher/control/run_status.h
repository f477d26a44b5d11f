#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace strait::control {

// What status.json of a run says; nothing where there is none yet. UserError: it is damaged.
std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run);

// A word from another terminal to the launcher of a live run: go on without this replica, or bring
// it back. It is a file in the run's directory, which the launcher looks for and takes away.
enum class ReplicaRequest : std::uint8_t { leave, come_back };

void ask_of_replica(ReplicaRequest request, const std::filesystem::path& run,
                    std::uint32_t replica);

// Of whom that was asked since this was last called, ascending.
std::vector<std::uint32_t> take_requests(ReplicaRequest request, const std::filesystem::path& run);

}  // namespace strait::control
