#include "launcher/app/verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "launcher/base/errors.h"
#include "launcher/recipe/recipe_io.h"

#include <filesystem>
#include <string>
#include <vector>

namespace strait::app {
namespace {

namespace fs = std::filesystem;

void refuse_existing(const fs::path& file) {
  if (!fs::exists(file)) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} exists already and is left as it is; name another file", file.string()));
}

// The names of the examples in a folder: quickstart for quickstart.toml.
std::vector<std::string> example_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The example recipes that belong to this program: `recipes` of the tree that it was built in, or
// `share/strait/recipes` of where it is installed.
fs::path example_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    for (const char* folder : {"recipes", "share/strait/recipes"}) {
      if (!example_names(at / folder).empty()) return at / folder;
    }
  }
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("no example recipes belong to {}; write a recipe of your own", program.string()));
}

base::ExitCode copy_example(const std::string& example, const fs::path& to) {
  const fs::path folder = example_folder();
  const std::vector<std::string> names = example_names(folder);
  if (std::find(names.begin(), names.end(), example) == names.end()) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("there is no example recipe {}; there are: {}", example,
                                      fmt::join(names, ", ")));
  }
  refuse_existing(to);
  std::error_code failed;
  fs::copy_file(folder / (example + ".toml"), to, failed);
  if (failed) {
    throw base::UserError(base::ExitCode::storage_io,
                          fmt::format("cannot write {}: {}", to.string(), failed.message()));
  }
  fmt::print("{} is a copy of the example {}; look at it, then: strait run {}\n", to.string(),
             example, to.string());
  return base::ExitCode::done;
}

base::ExitCode write_all_keys(const fs::path& to) {
  refuse_existing(to);
  store::replace_file(to, recipe::recipe_reference());
  fmt::print("{} has every key with its default, its meaning and what is allowed\n", to.string());
  return base::ExitCode::done;
}

}  // namespace

void add_init(CLI::App& cli, Command& command) {
  struct Options {
    std::string file;
    std::string example = "quickstart";
    bool keys = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("init", "copy an example recipe to begin from");
  verb->add_option("file", options->file, "the new recipe")->required();
  verb->add_option("--from", options->example, "which example")->capture_default_str();
  verb->add_flag("--keys", options->keys, "write every key with its default and meaning instead");
  verb->callback([options, &command] {
    command = [options] {
      return options->keys ? write_all_keys(options->file)
                           : copy_example(options->example, options->file);
    };
  });
}

}  // namespace strait::app
