#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace strait::control {

// One line of a process's log.
struct LogLine {
  std::string time;  // "2025-03-01 14:02:11.123" of it, or of the last line before it that has one
  std::string process;  // "1.0"
  std::string text;
};

// Reads a log line by line while somebody writes to its end. Lines keep their text as it is.
class LogReader {
 public:
  explicit LogReader(const std::filesystem::path& file);

  const std::string& process() const { return process_; }
  // The whole lines that have come since the last time, a few MiB at most; with `rest` also what
  // has no end yet.
  std::vector<LogLine> take(bool rest);

 private:
  std::filesystem::path file_;
  std::string process_;
  std::uint64_t taken_ = 0;
  std::string unfinished_;
  std::string time_;
};

// The logs in a folder, or just the one of `process`; by process, "10.0" behind "2.0".
std::vector<std::filesystem::path> log_files(const std::filesystem::path& folder,
                                             const std::string& process);

// Lines of several logs in the order of their times; those of one log keep theirs. Pure.
std::vector<LogLine> by_time(std::vector<LogLine> lines);

}  // namespace strait::control
