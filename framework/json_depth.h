#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace strait {

// More than any file of ours or of a model has. nlohmann parses deeper texts, but copies, compares
// and writes their values by recursion, so a hostile text could overflow the stack.
inline constexpr std::size_t kMostJsonDepth = 64;

// How deeply lists and objects of a JSON text are nested, whether or not the text is valid.
constexpr std::size_t json_depth(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace strait
