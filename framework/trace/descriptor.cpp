#include "framework/trace/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "framework/trace/trace_error.h"

namespace strait::trace {

Descriptor::Descriptor(const std::filesystem::path& path, int flags) : path_(path) {
  constexpr int kReadableByAll = 0644;
  do {
    number_ = ::open(path.c_str(), flags | O_CLOEXEC, kReadableByAll);
  } while (number_ < 0 && errno == EINTR);
  if (number_ < 0) fail("open");
}

Descriptor::~Descriptor() { ::close(number_); }

bool Descriptor::write(std::string_view text, std::size_t& written) const {
  written = 0;
  while (written < text.size()) {
    const ssize_t taken = ::write(number_, text.data() + written, text.size() - written);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return false;
    written += static_cast<std::size_t>(taken);
  }
  return true;
}

void Descriptor::fail(const char* action) const {
  throw TraceError(std::string("cannot ") + action + " " + path_.string() + ": " +
                   std::generic_category().message(errno));
}

}  // namespace strait::trace
