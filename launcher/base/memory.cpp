#include "launcher/base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>

namespace strait::base {
namespace {

constexpr const char* kStatus = "/proc/self/status";

// The lines "Name:   123 kB" of a file of /proc, in bytes.
std::map<std::string, std::int64_t> sizes_in(const char* path) {
  std::map<std::string, std::int64_t> sizes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.ends_with(" kB")) continue;
    const std::size_t digit = line.find_first_of("0123456789", colon);
    std::int64_t kilobytes = 0;  // stays where a process has a name that looks like a size
    std::from_chars(line.data() + std::min(digit, line.size()), line.data() + line.size(),
                    kilobytes);
    sizes[line.substr(0, colon)] = 1024 * kilobytes;
  }
  return sizes;
}

}  // namespace

HostMemory host_memory() {
  std::map<std::string, std::int64_t> sizes = sizes_in("/proc/meminfo");
  return {.total = sizes["MemTotal"], .available = sizes["MemAvailable"]};
}

std::int64_t peak_memory() { return sizes_in(kStatus)["VmHWM"]; }

OwnMemory::OwnMemory() {
  std::map<std::string, std::int64_t> now = sizes_in(kStatus);
  start_ = peak_ = now["RssAnon"] + now["RssShmem"];
  all_pages_ = now["VmHWM"];
  file_pages_ = now["RssFile"];
}

std::int64_t OwnMemory::peak() {
  std::map<std::string, std::int64_t> now = sizes_in(kStatus);
  peak_ = std::max(peak_, now["RssAnon"] + now["RssShmem"]);
  const std::int64_t files = now["RssFile"];
  if (now["VmHWM"] > all_pages_)
    peak_ = std::max(peak_, now["VmHWM"] - std::max(files, file_pages_));
  all_pages_ = now["VmHWM"];
  file_pages_ = files;
  return peak_ - start_;
}

}  // namespace strait::base
