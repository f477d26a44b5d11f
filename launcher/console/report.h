#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace strait::console {

// A page that needs nothing else: the plan as text, the loss and the speed of every step drawn, the
// last figures. Pure; `metrics` are the lines of metrics.jsonl.
std::string report_page(const std::string& run, const std::string& plan_text,
                        const std::vector<nlohmann::json>& metrics);

// Writes report.html of a run from its files. Lines of metrics that are cut short are passed over.
void write_report(const std::filesystem::path& run_directory, const std::string& run,
                  const std::string& plan_text);

}  // namespace strait::console
