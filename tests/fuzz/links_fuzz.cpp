// libFuzzer target: any text as links.toml, or behind a comma as a CSV file, ends in a table or in
// one UserError, and a table that was read is written so that it reads back equal.
#include <cstdlib>

#include "launcher/base/errors.h"
#include "launcher/recipe/links.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strait::recipe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const LinkTable table = text.starts_with(',') ? parse_links_csv(text.substr(1), "fuzz.csv")
                                                  : parse_links_toml(text, "fuzz.toml");
    if (parse_links_toml(write_links(table, "fuzz"), "again.toml") != table) std::abort();
  } catch (const strait::base::UserError&) {
    return 0;
  }
  return 0;
}
