#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// What status.json says, in lines for people; the same in `strait status` and `strait watch`. Each
// throws nlohmann's exception where it was not written by this build. Pure.
namespace strait::console {

// "step 12/300 · loss 0.412 · ETA 0:41 · checkpoint at step 10"
std::string numbers_line(const nlohmann::json& status);
// Of the last step: what crossed the boundaries, and what replicas said to each other.
std::vector<std::string> traffic_lines(const nlohmann::json& status);
// Where replicas have left: who takes part, why the others do not, and who is coming back.
std::vector<std::string> replica_lines(const nlohmann::json& status);
// What each process does, or waits for.
std::vector<std::string> process_lines(const nlohmann::json& status);

}  // namespace strait::console
