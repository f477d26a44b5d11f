#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace strait::cli {

// Of the page: report_page.css and report_page.js.
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

// A self-contained HTML page: what the run did and how it ended, charts of metrics over the steps,
// tables of processes and traffic, the plan, the last step. Takes the lines of metrics.jsonl one by
// one. Memory is bounded however many there are: at most some thousand points per curve, sums, and
// the last line.
class Report {
 public:
  Report();
  ~Report();

  // Lines without a step are skipped; so are values of the wrong type.
  void add(const nlohmann::json& line);
  // Takes a line of events.jsonl. The page shows the losses of evaluations, the latest restarts,
  // and the end.
  void add_event(const nlohmann::json& line);
  std::string page(const std::string& run, const std::string& plan_text) const;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

// Writes report.html of a run from its files. Incomplete lines of metrics are skipped.
void write_report(const std::filesystem::path& run_directory, const std::string& run,
                  const std::string& plan_text);

}  // namespace strait::cli
