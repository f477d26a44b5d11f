#include "launcher/log_tail.h"

#include <algorithm>
#include <fstream>

namespace strait::launcher {
namespace {

constexpr std::streamoff kTailBytes = std::streamoff{64} << 10;
constexpr std::size_t kLineBytes = 400;

// A log is shown on terminals and in reports: nothing in it may steer them.
std::string harmless(std::string line) {
  std::erase_if(line, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
  if (line.size() > kLineBytes) line = line.substr(0, kLineBytes) + "…";
  return line;
}

}  // namespace

std::vector<std::string> log_tail(const std::filesystem::path& file, std::size_t count) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kTailBytes);
  in.seekg(from);
  std::vector<std::string> lines;
  std::string line;
  if (from > 0) std::getline(in, line);  // the rest of a line whose beginning was not read
  while (std::getline(in, line)) {
    if (!line.empty()) lines.push_back(harmless(std::move(line)));
  }
  if (lines.size() > count) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  return lines;
}

}  // namespace strait::launcher
