#include "launcher/base/shell_word.h"

#include <algorithm>
#include <string_view>

namespace strait::base {
namespace {

bool means_itself(char c) {
  constexpr std::string_view kPlain = "_-./:,@%+=";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPlain.find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(const std::string& text) {
  if (!text.empty() && std::ranges::all_of(text, means_itself)) return text;
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

}  // namespace strait::base
