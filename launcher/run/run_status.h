#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace strait::run {

// Status and requests of a live run, for other processes on its machine. Both are files in the
// run's directory.

// The content of status.json; empty: none yet. UserError: it is damaged.
std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run);
// For a verb that needs a run that has started, or a live one: throws UserError.
[[noreturn]] void refuse_run_not_started(const std::filesystem::path& run);
[[noreturn]] void refuse_not_live(const std::filesystem::path& run);
// For a status without what this build writes: throws UserError.
[[noreturn]] void refuse_foreign_status(const std::filesystem::path& run,
                                        const std::exception& error);

// A request to the launcher of a live run: a file that the launcher polls for and removes.
enum class ReplicaRequest : std::uint8_t { leave, rejoin };

void request_replica(ReplicaRequest request, const std::filesystem::path& run,
                     std::uint32_t replica);

// The replicas of all requests since the last call, ascending; empty if the directory cannot be
// listed now.
std::vector<std::uint32_t> take_requests(ReplicaRequest request, const std::filesystem::path& run);

}  // namespace strait::run
