#pragma once

#include <string>

#include "launcher/recipe/link_table.h"

namespace strait::recipe {

// The TOML text of a table, which read_links() reads back as it was: numbers are exact, and
// comments say what they are. `heading` becomes its first comment.
std::string write_links(const LinkTable& table, const std::string& heading);

}  // namespace strait::recipe
