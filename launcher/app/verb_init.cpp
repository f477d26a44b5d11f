#include "launcher/app/verb_init.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "launcher/recipe/recipe_writer.h"
#include "launcher/base/user_error.h"

namespace strait::app {
namespace {

namespace fs = std::filesystem;

void refuse_existing(const fs::path& file) {
  if (!fs::exists(file)) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} exists already and is left as it is; name another file", file.string()));
}

}  // namespace

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

std::vector<std::string> example_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

base::ExitCode copy_example(const std::string& example, const fs::path& to) {
  const fs::path folder = example_folder();
  const std::vector<std::string> names = example_names(folder);
  if (std::find(names.begin(), names.end(), example) == names.end()) {
    throw base::UserError(base::ExitCode::bad_input, fmt::format("there is no example recipe {}; there are: {}",
                                                     example, fmt::join(names, ", ")));
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

}  // namespace strait::app
