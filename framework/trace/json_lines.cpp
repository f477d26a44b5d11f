#include "framework/trace/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace strait::trace {
namespace {

bool ends_inside_a_line(const Descriptor& file) {
  const off_t size = ::lseek(file.number(), 0, SEEK_END);
  if (size <= 0) return false;  // empty, or a pipe, which has no past
  char last = '\n';
  if (::pread(file.number(), &last, 1, size - 1) != 1) file.fail("read the end of");
  return last != '\n';
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& path)
    : file_(path, O_RDWR | O_CREAT | O_APPEND), torn_(ends_inside_a_line(file_)) {}

void JsonLines::append(const nlohmann::ordered_json& line) {
  // Texts may come from other machines; bytes that are not UTF-8 must not cost the line.
  constexpr auto kReplaceBadText = nlohmann::ordered_json::error_handler_t::replace;
  std::string text = line.dump(-1, ' ', false, kReplaceBadText) + '\n';
  const MutexLock lock(mutex_);
  if (torn_) text.insert(0, 1, '\n');
  std::size_t written = 0;
  if (file_.write(text, written)) {
    torn_ = false;
    return;
  }
  if (written > 0) torn_ = text[written - 1] != '\n';
  file_.fail("write a line to");
}

}  // namespace strait::trace
