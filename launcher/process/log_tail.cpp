#include "launcher/process/log_tail.h"

#include <algorithm>
#include <fstream>

#include "launcher/base/text.h"

namespace strait::process {
namespace {

constexpr std::streamoff kTailBytes = std::streamoff{64} << 10;
constexpr std::size_t kLineBytes = 400;

std::string shown(const std::string& line) {
  const std::string text = base::printable(line);
  return text.size() > kLineBytes ? text.substr(0, kLineBytes) + "…" : text;
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
    if (!line.empty()) lines.push_back(shown(line));
  }
  if (lines.size() > count) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  return lines;
}

}  // namespace strait::process
