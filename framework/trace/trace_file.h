#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "framework/file_descriptor.h"
#include "framework/mutex.h"

namespace strait::trace {

// A file of measurements could not be opened, written or read. The text names the file and the
// system's error.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A POSIX file that is closed at the end of its scope. Threads need a lock to share it. Failures
// throw TraceError with the path and the system's error.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, int flags);

  int number() const { return file_.number(); }

  // A single write(2) if the system takes all bytes at once, which it does on a healthy disk.
  // Returns false, with errno set, if it took only `written` bytes and then failed.
  bool write(std::string_view text, std::size_t& written) const;

  // Throws "cannot <action> <path>: <errno>".
  [[noreturn]] void fail(const char* action) const;

 private:
  const std::filesystem::path path_;
  FileDescriptor file_;
};

// Whole text files. Readers of `path` see the old or the new content, never a part. Unlike a
// checkpoint, the file may be lost in a power failure. Both throw TraceError.
void replace_text(const std::filesystem::path& path, std::string_view text);

// Refuses a file above `most_bytes` before reading it.
std::string read_text(const std::filesystem::path& path, std::uintmax_t most_bytes);

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
