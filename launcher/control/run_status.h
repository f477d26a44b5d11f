#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace strait::control {

// What status.json of a run says; nothing where there is none yet. UserError: it is damaged.
std::optional<nlohmann::json> read_run_status(const std::filesystem::path& run);

}  // namespace strait::control
