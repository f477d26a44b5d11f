#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "launcher/recipe/link_table.h"

namespace strait::recipe {

// Reads what `strait probe` writes, or what a person does: TOML with [[hosts]] and [[links]] tables
// whose keys are the fields of link_table.h. A file called *.csv has a line per link instead,
// "from,to,mbit_per_s,ms", that heading included; ms is the way one way.
//
// UserError (bad_input) names file and line, what is wrong, and what is allowed. Safe on hostile
// input.
LinkTable read_links(const std::filesystem::path& file);

// The same for text at hand; `source` is its name in errors.
LinkTable parse_links_toml(std::string_view text, const std::string& source);
LinkTable parse_links_csv(std::string_view text, const std::string& source);

}  // namespace strait::recipe
