#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "framework/mutex.h"
#include "framework/trace/trace_error.h"
#include "framework/trace/trace_file.h"

namespace strait::trace {

// Appends one JSON value per line to a file. A line reaches the file with a single write, so that a
// reader that follows the file does not see half a line, and lines of several processes appending
// to the same file do not mix. Numbers are printed so that they read back exactly; a number that is
// not finite, which JSON cannot say, is written as null.
//
// Any thread may append. Not a log with levels, and not durable: nothing waits for the disk.
class JsonLines {
 public:
  // Creates the file where it does not exist, and goes on behind its end where it does; a last line
  // cut short by a crash is removed first, a whole object without its newline is kept. The folder
  // must exist. Throws TraceError.
  explicit JsonLines(const std::filesystem::path& path);

  // Throws TraceError. When a line went out only in part (a full disk), that part is taken back.
  void append(const nlohmann::ordered_json& line) STRAIT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  const TraceFile file_;
  bool torn_ STRAIT_GUARDED_BY(mutex_) = false;  // the last line has no newline
};

}  // namespace strait::trace
