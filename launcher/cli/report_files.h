#pragma once

#include <fstream>

#include "launcher/cli/report_data.h"
#include "launcher/cli/report_plan.h"

namespace strait::cli {

// Reads a file that grows, or that another file of its name replaces.
class GrowingFile {
 public:
  // True: what was read is of no use, because this is another file, or it was cut.
  bool replaced(const std::filesystem::path& path);
  // Calls `use` with every whole line since the last call.
  void read_on(const std::filesystem::path& path,
               const std::function<void(const std::string&)>& use);

 private:
  std::uintmax_t file_ = 0;  // its number in the file system; 0: none
  std::uintmax_t read_ = 0;  // bytes
};

// What the files of a run say now.
ReportData read_report_data(const std::filesystem::path& run);

// Writes report.html of a run from its files, again and again: each time it reads what is new in
// them. Not for several threads at a time.
class ReportFiles {
 public:
  void write(const std::filesystem::path& run, const ReportPlan& plan);

 private:
  std::filesystem::path run_;
  GrowingFile metrics_;
  GrowingFile events_;
  ReportData data_;
  std::filesystem::file_time_type trace_written_;
  StepTimeline measured_;
};

}  // namespace strait::cli
