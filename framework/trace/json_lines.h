#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "framework/mutex.h"
#include "framework/trace/trace_error.h"
#include "framework/trace/trace_file.h"

namespace strait::trace {

// Appends one JSON value per line to a file. Each line is a single write. So a reader that follows
// the file does not see half a line, and lines of several processes do not mix. Numbers are printed
// so that they read back exactly. A number that is not finite, which JSON lacks, becomes null.
//
// Any thread may append. Not a log with levels, and not durable: nothing waits for the disk.
class JsonLines {
 public:
  // Creates the file, or appends to an existing one. A last line cut short by a crash is removed
  // first; a whole object without its newline is kept. The folder must exist. Throws TraceError.
  explicit JsonLines(const std::filesystem::path& path);

  // Throws TraceError. If only part of a line was written (a full disk), that part is removed.
  void append(const nlohmann::ordered_json& line) STRAIT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  const TraceFile file_;
  bool torn_ STRAIT_GUARDED_BY(mutex_) = false;  // the last line has no newline
};

}  // namespace strait::trace
