#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace strait::run {

// One line of a process's log.
struct LogLine {
  std::string time;     // "2025-03-01 14:02:11.123"; if it has none, that of the previous line
  std::string process;  // "1.0"
  std::string text;
};

// Follows a log that is being written, line by line. Does not change the text.
class LogReader {
 public:
  explicit LogReader(const std::filesystem::path& file);

  const std::string& process() const { return process_; }
  // The complete lines since the last call; empty only at the end of the file, and at most a few
  // MiB. With `rest` also an incomplete line at the end.
  std::vector<LogLine> take(bool rest);

 private:
  std::filesystem::path file_;
  std::string process_;
  std::uint64_t taken_ = 0;
  std::string unfinished_;
  std::string time_;
};

// The logs in a folder, or only that of `process` if it is not empty; "10.0" sorts after "2.0".
std::vector<std::filesystem::path> log_files(const std::filesystem::path& folder,
                                             const std::string& process);

// The last line of a file, such as metrics.jsonl, that contains this text; empty: none.
std::string last_line_with(const std::filesystem::path& file, const std::string& text);

// Sorts lines of several logs by time; lines of one log keep their order. Pure.
std::vector<LogLine> by_time(std::vector<LogLine> lines);

}  // namespace strait::run
