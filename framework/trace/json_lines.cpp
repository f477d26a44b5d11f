#include "framework/trace/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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
