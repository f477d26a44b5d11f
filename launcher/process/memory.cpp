#include "launcher/process/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>

namespace strait::process {
namespace {

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

std::int64_t peak_memory() { return sizes_in("/proc/self/status")["VmHWM"]; }

}  // namespace strait::process
