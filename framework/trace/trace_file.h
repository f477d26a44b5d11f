#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "framework/file_descriptor.h"

namespace strait::trace {

// A POSIX file that is closed when it goes out of scope. Not for threads to share without a lock.
// What fails throws TraceError with the path and the system's words.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, int flags);

  int number() const { return file_.number(); }

  // One write(2) as long as the system takes all of it at once, as it does on a healthy disk.
  // Returns false, with errno set, when it took only `written` bytes and then failed.
  bool write(std::string_view text, std::size_t& written) const;

  // "cannot <action> <path>: <what errno says>", thrown.
  [[noreturn]] void fail(const char* action) const;

 private:
  const std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace strait::trace
