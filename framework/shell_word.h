#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace strait {

// One word of a POSIX shell command with exactly this content; quoted where necessary.
inline std::string shell_word(const std::string& text) {
  // No POSIX shell interprets these, nor ASCII letters and digits.
  constexpr std::string_view kPlain = "_-./:,@%+=";
  const auto is_plain = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPlain.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace strait
