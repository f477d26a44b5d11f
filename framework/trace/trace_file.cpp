#include "framework/trace/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "framework/trace/trace_error.h"

namespace strait::trace {

TraceFile::TraceFile(const std::filesystem::path& path, int flags) : path_(path) {
  constexpr int kReadableByAll = 0644;
  do {
    file_ = FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, kReadableByAll));
  } while (!file_.open() && errno == EINTR);
  if (!file_.open()) fail("open");
}

bool TraceFile::write(std::string_view text, std::size_t& written) const {
  written = 0;
  while (written < text.size()) {
    const ssize_t taken = ::write(number(), text.data() + written, text.size() - written);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return false;
    written += static_cast<std::size_t>(taken);
  }
  return true;
}

void TraceFile::fail(const char* action) const {
  throw TraceError(std::string("cannot ") + action + " " + path_.string() + ": " +
                   std::generic_category().message(errno));
}

}  // namespace strait::trace
