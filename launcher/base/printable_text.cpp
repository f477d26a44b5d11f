#include "launcher/base/printable_text.h"

#include <cstddef>

namespace strait::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Bytes of the UTF-8 character at the start of this text; 0 when there is none. Overlong forms,
// surrogates and numbers beyond Unicode are none.
std::size_t character_length(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 0 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte_at(text, 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

// Of one character: below the blank, delete, and U+0080 to U+009F, which some terminals obey too.
bool steers(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(character, 1) < 0xA0);
}

std::string without_steering(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length == 0) {
      result += kReplacement;
    } else if (!steers(character) || kept.find(character) != std::string_view::npos) {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace

std::string printable(std::string_view line) { return without_steering(line, {}); }
std::string printable_lines(std::string_view lines) { return without_steering(lines, "\n"); }

}  // namespace strait::base
