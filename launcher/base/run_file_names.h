#pragma once

#include <filesystem>
#include <string>

namespace strait::base {

// The contents of a run's directory, for RunDirectory and for readers of a run that another process
// owns. A run's directory on a remote host uses the same names.
inline constexpr const char* kPlanFile = "plan.json";
inline constexpr const char* kRecipeFile = "recipe.toml";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kStatusFile = "status.json";
inline constexpr const char* kReportFile = "report.html";
inline constexpr const char* kTraceFile = "trace.json";  // of all processes
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kGenerationFile = "generation";        // how often the run was started
inline constexpr const char* kJournalFile = "resume.journal.json";  // changes in progress
inline constexpr const char* kLogsFolder = "logs";

// Files of one process ("1.0"), relative to the run's directory.
inline std::filesystem::path log_file(const std::string& process) {
  return std::filesystem::path(kLogsFolder) / (process + ".log");
}
inline std::filesystem::path trace_file(const std::string& process) {
  return std::filesystem::path(kLogsFolder) / (process + ".trace.json");
}

}  // namespace strait::base
