// libFuzzer target: whatever the bytes, reading a recipe ends in a Recipe or in one UserError, and
// a Recipe that was read is written so that it reads back equal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/recipe/recipe_reader.h"
#include "launcher/recipe/recipe_writer.h"
#include "launcher/user_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strait::launcher::parse_recipe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto recipe = parse_recipe(text, "fuzz.toml");
    if (parse_recipe(strait::launcher::recipe_to_toml(recipe), "again.toml") != recipe) {
      std::abort();
    }
  } catch (const strait::launcher::UserError&) {
    return 0;
  }
  return 0;
}
