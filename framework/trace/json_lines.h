#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "framework/mutex.h"
#include "framework/trace/trace_error.h"

namespace strait::trace {

// Appends one JSON value per line to a file. A line reaches the file with a single write, so that a
// reader that follows the file never sees half a line for long, and lines of several processes
// appending to the same file do not mix. Numbers are printed so that they read back exactly; a
// number that is not finite, which JSON cannot say, is written as null.
//
// Any thread may append. Not a log with levels, and not durable: nothing waits for the disk.
class JsonLines {
 public:
  // Creates the file where it does not exist, and goes on behind its end where it does; a last line
  // cut short by a crash is ended first. The folder must exist. Throws TraceError.
  explicit JsonLines(std::filesystem::path path);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Throws TraceError; the file then ends after the last whole line or with a part of this one.
  void append(const nlohmann::ordered_json& line) STRAIT_EXCLUDES(mutex_);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_all(const std::string& text) STRAIT_REQUIRES(mutex_);

  const std::filesystem::path path_;
  Mutex mutex_;
  int descriptor_ STRAIT_GUARDED_BY(mutex_) = -1;
};

}  // namespace strait::trace
