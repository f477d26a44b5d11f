#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launcher/run/run_files.h"

namespace strait::launcher {

// A page that needs nothing else: the plan, the loss and the speed of every step drawn, the last
// figures. Pure; `metrics` are the lines of metrics.jsonl.
std::string report_page(const Plan& plan, const std::vector<nlohmann::json>& metrics);

// Writes report.html of a run from its files. Lines of metrics that are cut short are passed over.
void write_report(const std::filesystem::path& run_directory, const Plan& plan);

}  // namespace strait::launcher
