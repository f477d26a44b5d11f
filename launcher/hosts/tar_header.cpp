#include "launcher/hosts/tar_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace strait::hosts {
namespace {

constexpr std::size_t kChecksumAt = 148;

void put(std::array<char, kTarBlock>& block, std::size_t at, std::string_view text) {
  std::ranges::copy(text, block.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

std::array<char, kTarBlock> tar_header(const std::string& name, std::uint64_t size) {
  std::array<char, kTarBlock> block{};
  put(block, 0, std::string_view(name).substr(0, 99));
  put(block, 100, "0000755");
  put(block, 108, "0000000");  // owner and group: whoever unpacks
  put(block, 116, "0000000");
  put(block, 124, fmt::format("{:011o}", size));
  put(block, 136, "00000000000");  // a fixed time: the same content is the same archive
  put(block, kChecksumAt, "        ");
  block[156] = '0';  // a regular file
  put(block, 257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put(block, kChecksumAt, fmt::format("{:06o}", sum));
  block[kChecksumAt + 6] = '\0';
  return block;
}

}  // namespace strait::hosts
