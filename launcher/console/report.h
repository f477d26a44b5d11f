#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace strait::console {

// A self-contained HTML page: the plan, charts of metrics over the steps, traffic tables, the last
// step. Pure; `metrics` are the lines of metrics.jsonl.
std::string report_page(const std::string& run, const std::string& plan_text,
                        const std::vector<nlohmann::json>& metrics);

// Writes report.html of a run from its files. Incomplete lines of metrics are skipped.
void write_report(const std::filesystem::path& run_directory, const std::string& run,
                  const std::string& plan_text);

}  // namespace strait::console
