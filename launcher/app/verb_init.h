#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/base/exit_code.h"

namespace strait::app {

// `strait init FILE`: copies an example recipe (with its comments) to a new file. UserError: no
// such example (lists those there are), or the file exists.
base::ExitCode copy_example(const std::string& example, const std::filesystem::path& to);

// `strait init --keys FILE`: every key of a recipe with its default, its meaning and what is
// allowed.
base::ExitCode write_all_keys(const std::filesystem::path& to);

// The folder of example recipes that belongs to this program: found from where the program is,
// `recipes` of the tree it was built in or `share/strait/recipes` of where it is installed.
std::filesystem::path example_folder();

// The names of the examples in a folder: quickstart for quickstart.toml.
std::vector<std::string> example_names(const std::filesystem::path& folder);

}  // namespace strait::app
