#pragma once

#include <cstddef>
#include <string_view>

// Text from files, pipes and users, which may not be UTF-8.
namespace strait {

// Some editors put this in front of a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// U+FFFD, which replaces invalid UTF-8.
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The size of the UTF-8 character at the start of `text`; 0: there is none. Overlong forms,
// surrogates and code points beyond U+10FFFF do not count.
constexpr std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (text.empty() || first > 0xf4U || (first >= 0x80U && first < 0xc2U)) return 0;
  if (first < 0x80U) return 1;
  const std::size_t length = first < 0xe0U ? 2 : first < 0xf0U ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (first == 0xe0U && second < 0xa0U) || (first == 0xf0U && second < 0x90U);
  const bool beyond = (first == 0xedU && second > 0x9fU) || (first == 0xf4U && second > 0x8fU);
  return overlong || beyond ? 0 : length;
}

constexpr bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace strait
