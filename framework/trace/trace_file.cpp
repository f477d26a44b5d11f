#include "framework/trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

void replace_text(const std::filesystem::path& path, std::string_view text) {
  // Named by pid, because another process may replace the same file.
  std::filesystem::path fresh = path;
  fresh += ".new-" + std::to_string(::getpid());
  try {
    const TraceFile file(fresh, O_WRONLY | O_CREAT | O_TRUNC);
    std::size_t written = 0;
    if (!file.write(text, written)) file.fail("write");
    if (::rename(fresh.c_str(), path.c_str()) != 0) file.fail("put its final name to");
  } catch (const TraceError&) {
    ::unlink(fresh.c_str());
    throw;
  }
}

std::string read_text(const std::filesystem::path& path, std::uintmax_t most_bytes) {
  const TraceFile file(path, O_RDONLY);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) file.fail("examine");
  const auto size = static_cast<std::uintmax_t>(facts.st_size);
  // The limit holds memory down; a pipe or device has no size to check.
  if (!S_ISREG(facts.st_mode) || size > most_bytes) {
    throw TraceError("cannot read " + path.string() + ": it has " + std::to_string(size) +
                     " bytes; expected a plain file of at most " + std::to_string(most_bytes));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(file.number(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.fail("read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace strait::trace
