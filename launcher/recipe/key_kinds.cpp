#include "launcher/recipe/key_kinds.h"

#include <algorithm>

namespace strait::recipe::key_kinds {

namespace {

// JSON and TOML both require UTF-8; this accepts every sequence of lead and continuation bytes.
bool is_utf8(std::string_view written) {
  for (std::size_t i = 0; i < written.size();) {
    const auto lead = static_cast<unsigned char>(written[i]);
    const std::size_t followers = lead < 0x80U   ? 0
                                  : lead < 0xC2U ? 4
                                  : lead < 0xE0U ? 1
                                  : lead < 0xF0U ? 2
                                  : lead < 0xF5U ? 3
                                                 : 4;
    if (followers == 4 || i + followers >= written.size()) {
      return false;
    }
    for (std::size_t k = 1; k <= followers; ++k) {
      if ((static_cast<unsigned char>(written[i + k]) & 0xC0U) != 0x80U) {
        return false;
      }
    }
    i += followers + 1;
  }
  return true;
}

}  // namespace

bool is_clean_text(const RecipeValue& value) {
  const auto* written = value.get_ptr<const std::string*>();
  return written != nullptr && !written->empty() && written->size() <= 4096 && is_utf8(*written) &&
         std::ranges::none_of(*written, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20U || byte == 0x7FU;
         });
}

bool is_part_name(const RecipeValue& value) {
  constexpr std::size_t kLongest = 64;
  const auto* written = value.get_ptr<const std::string*>();
  return written != nullptr && !written->empty() && written->size() <= kLongest &&
         std::ranges::all_of(*written, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

}  // namespace strait::recipe::key_kinds
