#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "framework/store/atomic_file.h"
#include "launcher/base/command_name.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/cli/verbs.h"
#include "launcher/recipe/recipe_io.h"

namespace strait::cli {
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
  std::error_code none;  // of any folder above the program: it may be anything
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none)) {
    if (entry->path().extension() == ".toml") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The example recipes that belong to this program.
fs::path example_folder() {
  const fs::path program = base::own_program();
  const fs::path shared = base::shared_folder(program);
  if (!shared.empty()) return shared / "recipes";
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("no example recipes belong to {}; a recipe with every key is written by: {} init "
                  "--keys all.toml",
                  program.string(), base::command_name()));
}

std::string read_example(const fs::path& file) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.bad() && !text.empty()) return text;
  throw base::UserError(base::ExitCode::storage_io,
                        fmt::format("cannot read the example {}", file.string()));
}

// The first sentence of the comment at the top.
std::string summary_of(const std::string& text) {
  std::istringstream lines(text);
  std::string summary;
  for (std::string line; std::getline(lines, line) && line.starts_with("# ");) {
    summary += (summary.empty() ? "" : " ") + line.substr(2);
    if (const auto end = summary.find(". "); end != std::string::npos)
      return summary.substr(0, end);
  }
  return summary.ends_with('.') ? summary.substr(0, summary.size() - 1) : summary;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// An example names its own model and data as "recipes/…", from the folder of the source tree. From
// elsewhere they are found by their absolute path.
std::string copy_of_example(const fs::path& folder, const std::string& example,
                            const fs::path& to) {
  std::string text = read_example(folder / (example + ".toml"));
  replace_all(text, "recipes/" + example + ".toml", base::shell_word(to.string()));
  std::error_code none;
  if (fs::equivalent("recipes", folder, none)) return text;
  std::string absolute = folder.string();
  replace_all(absolute, "\\", "\\\\");
  replace_all(absolute, "\"", "\\\"");
  replace_all(text, "= \"recipes/", "= \"" + absolute + "/");
  return text;
}

base::ExitCode list_examples() {
  const fs::path folder = example_folder();
  for (const std::string& name : example_names(folder)) {
    fmt::print("{:<18}  {}\n", name, summary_of(read_example(folder / (name + ".toml"))));
  }
  fmt::print("copy one: {0} init NAME [FILE]; every key: {0} init --keys FILE\n",
             base::command_name());
  return base::ExitCode::done;
}

// `words`: the name of an example, the file to write; or only one of them.
base::ExitCode copy_example(const std::vector<std::string>& words) {
  const fs::path folder = example_folder();
  const std::vector<std::string> names = example_names(folder);
  const auto is_name = [&names](const std::string& word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  std::string example = words.empty() ? "quickstart" : words[0];
  fs::path to = words.size() > 1 ? words[1] : example + ".toml";
  if (words.size() == 1 && !is_name(example) && example.ends_with(".toml")) {
    to = example;
    example = "quickstart";
  }
  if (!is_name(example)) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("there is no example recipe {}; there are: {}", example,
                                      fmt::join(names, ", ")));
  }
  refuse_existing(to);
  const std::string text = copy_of_example(folder, example, to);
  store::replace_file(to, text);
  const bool complete = text.find("# edit") == std::string::npos;
  fmt::print("{} is a copy of the example {}; {}, then: {}\n", to.string(), example,
             complete ? "look at it" : "edit the lines that say \"edit\"",
             base::strait_command("run", to));
  return base::ExitCode::done;
}

base::ExitCode write_all_keys(const std::vector<std::string>& words) {
  if (words.size() > 1) {
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("init --keys takes one file to write, and not {}; leave all "
                                      "but one out",
                                      fmt::join(words, " and ")));
  }
  const fs::path to = words.empty() ? "all.toml" : words[0];
  refuse_existing(to);
  store::replace_file(to, recipe::recipe_reference());
  fmt::print("{} has every key with its default, its meaning and what is allowed\n", to.string());
  return base::ExitCode::done;
}

}  // namespace

void add_init(CLI::App& cli, Command& command) {
  struct Options {
    std::optional<std::string> name;
    std::optional<std::string> file;
    bool list = false;
    bool keys = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("init", "copy an example recipe to begin from");
  verb->add_option("name", options->name, "an example; absent: quickstart");
  verb->add_option("file", options->file,
                   "to write, also without a name; absent: NAME.toml, or all.toml for --keys");
  CLI::Option* list = verb->add_flag("--list", options->list, "list the examples");
  verb->add_flag("--keys", options->keys, "write every key with its default and meaning instead")
      ->excludes(list);
  verb->callback([options, &command] {
    command = [options] {
      if (options->list) return list_examples();
      std::vector<std::string> words;
      for (const auto& word : {options->name, options->file}) {
        if (word) words.push_back(*word);
      }
      return options->keys ? write_all_keys(words) : copy_example(words);
    };
  });
}

}  // namespace strait::cli
