#include "launcher/recipe/key_kinds.h"

#include "framework/utf8.h"
#include "launcher/base/text.h"

namespace strait::recipe::key_kinds {

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
           return base::is_ascii_alphanumeric(c) || c == '_' || c == '-' || c == '.';
         });
}

RecipeKey written_if_set(RecipeKey key) {
  key.get = [get = std::move(key.get)](const Recipe& recipe) {
    static const Recipe kDefaults;
    RecipeValue value = get(recipe);
    return value == get(kDefaults) ? RecipeValue() : value;
  };
  return key;
}

}  // namespace strait::recipe::key_kinds
