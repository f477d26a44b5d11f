// libFuzzer target: whatever the bytes, reading a recipe ends in a Recipe or in one UserError, and
// a Recipe that was read is written so that it reads back equal.
#include <cstdlib>

#include "framework/sync/methods.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/recipe/recipe_keys.h"

// The rooms that have codecs need libtorch; here their names are enough.
std::vector<std::string> part_names(strait::recipe::PartKind kind) {
  using strait::recipe::PartKind;
  if (kind == PartKind::sync_method) return strait::sync::method_names();
  if (kind == PartKind::schedule) return {"gpipe", "1f1b", "interleaved"};
  return {"raw", "fixed", "delta", "transform", "auto"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strait::recipe::parse_recipe;
  strait::recipe::set_part_names(part_names);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto recipe = parse_recipe(text, "fuzz.toml");
    if (parse_recipe(strait::recipe::recipe_to_toml(recipe), "again.toml") != recipe) {
      std::abort();
    }
  } catch (const strait::base::UserError&) {
    return 0;
  }
  return 0;
}
