#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "framework/file_descriptor.h"

namespace strait::trace {

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

}  // namespace strait::trace
