#include "framework/trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

namespace strait::trace {
namespace {

// The offset after the last newline.
off_t end_of_lines(const TraceFile& file, off_t size) {
  std::array<char, 4096> piece{};
  while (size > 0) {
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(piece.size()));
    const auto count = static_cast<std::size_t>(size - begin);
    if (::pread(file.number(), piece.data(), count, begin) != static_cast<ssize_t>(count)) {
      file.fail("read the end of");
    }
    const std::size_t newline = std::string_view(piece.data(), count).rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<off_t>(newline) + 1;
    size = begin;
  }
  return 0;
}

// Removes what was written of a line. False: another process has appended meanwhile.
bool take_back(const TraceFile& file, std::size_t written) {
  const off_t end = ::lseek(file.number(), 0, SEEK_CUR);
  return end > 0 && ::lseek(file.number(), 0, SEEK_END) == end &&
         ::ftruncate(file.number(), end - static_cast<off_t>(written)) == 0;
}

bool is_whole_object(const TraceFile& file, off_t begin, off_t end) {
  std::string text(static_cast<std::size_t>(end - begin), ' ');
  if (::pread(file.number(), text.data(), text.size(), begin) !=
      static_cast<ssize_t>(text.size())) {
    file.fail("read the end of");
  }
  return text.starts_with('{') && nlohmann::json::accept(text);
}

// Whether the next line must start with a newline. The last line lacks only its newline (an editor
// or a copy removed it), or it was cut short by a crash or a full disk and cannot be removed.
bool ends_inside_a_line(const TraceFile& file) {
  const off_t size = ::lseek(file.number(), 0, SEEK_END);
  if (size <= 0) return false;  // empty, or a pipe, which cannot be read back
  char last = '\n';
  if (::pread(file.number(), &last, 1, size - 1) != 1) file.fail("read the end of");
  if (last == '\n') return false;
  // Readers take line by line, and half a line stops them.
  const off_t begin = end_of_lines(file, size);
  return is_whole_object(file, begin, size) || ::ftruncate(file.number(), begin) != 0;
}

}  // namespace

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

JsonLines::JsonLines(const std::filesystem::path& path)
    : file_(path, O_RDWR | O_CREAT | O_APPEND), torn_(ends_inside_a_line(file_)) {}

void JsonLines::append(const nlohmann::ordered_json& line) {
  // Texts may come from other machines; invalid UTF-8 must not lose the line.
  constexpr auto kReplaceBadText = nlohmann::ordered_json::error_handler_t::replace;
  std::string text = line.dump(-1, ' ', false, kReplaceBadText) + '\n';
  const MutexLock lock(mutex_);
  if (torn_) text.insert(0, 1, '\n');
  std::size_t written = 0;
  if (file_.write(text, written)) {
    torn_ = false;
    return;
  }
  const int why = errno;
  if (written > 0 && !take_back(file_, written)) torn_ = text[written - 1] != '\n';
  errno = why;
  file_.fail("write a line to");
}

}  // namespace strait::trace
