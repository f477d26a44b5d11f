#include "launcher/cli/report_files.h"

#include <sys/stat.h>

#include "framework/store/atomic_file.h"
#include "framework/trace/metric_json.h"
#include "launcher/base/run_file_names.h"
#include "launcher/cli/report.h"
#include "launcher/run/run_status.h"

namespace strait::cli {

namespace {

nlohmann::json parsed(const std::string& line) {
  return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

bool GrowingFile::replaced(const std::filesystem::path& path) {
  struct stat now {};
  const bool exists = ::stat(path.c_str(), &now) == 0;
  const std::uintmax_t file = exists ? now.st_ino : 0;
  const bool same = file == file_ && (!exists || static_cast<std::uintmax_t>(now.st_size) >= read_);
  if (same) return false;
  const bool had_another = file_ != 0;
  file_ = file;
  read_ = 0;
  return had_another;
}

void GrowingFile::read_on(const std::filesystem::path& path,
                          const std::function<void(const std::string&)>& use) {
  std::ifstream stream(path, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(read_));
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    read_ += line.size() + 1;
    use(line);
  }
}

ReportData read_report_data(const std::filesystem::path& run) {
  ReportData data;
  GrowingFile().read_on(run / base::kMetricsFile,
                        [&](const std::string& line) { data.add(parsed(line)); });
  GrowingFile().read_on(run / base::kEventsFile,
                        [&](const std::string& line) { data.add_event(parsed(line)); });
  return data;
}

void ReportFiles::write(const std::filesystem::path& run, const ReportPlan& plan) {
  if (run != run_) *this = ReportFiles();
  run_ = run;
  // A restart takes back the steps after its checkpoint.
  if (metrics_.replaced(run / base::kMetricsFile) || events_.replaced(run / base::kEventsFile)) {
    *this = ReportFiles();
    run_ = run;
    metrics_.replaced(run / base::kMetricsFile);
    events_.replaced(run / base::kEventsFile);
  }
  metrics_.read_on(run / base::kMetricsFile,
                   [&](const std::string& line) { data_.add(parsed(line)); });
  events_.read_on(run / base::kEventsFile,
                  [&](const std::string& line) { data_.add_event(parsed(line)); });
  try {
    const auto status = run::read_run_status(run).value_or(nlohmann::json::object());
    data_.parts =
        trace::read_metrics<run::PartSeconds>(status.value("parts", nlohmann::json::array()));
  } catch (const std::exception&) {
    data_.parts.clear();  // a damaged status is no reason against a report
  }
  std::error_code absent;
  const auto trace_written = std::filesystem::last_write_time(run / base::kTraceFile, absent);
  if (!absent && trace_written != trace_written_) {
    std::ifstream trace(run / base::kTraceFile);
    // Those of processes that have not written theirs at the same checkpoint share no step.
    StepTimeline measured = measured_step(trace);
    if (!measured.rows.empty()) measured_ = std::move(measured);
    trace_written_ = trace_written;
  }
  store::replace_file(run / base::kReportFile, report_page(data_, plan, measured_));
}

}  // namespace strait::cli
