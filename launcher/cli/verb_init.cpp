
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/step_folders.h"
#include "launcher/base/piped_process.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;

void refuse_existing(const fs::path& file) {
  if (!fs::exists(file)) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "{} exists already and is left as it is; name another file", file.string());
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
  throw base::UserError(base::ExitCode::bad_input,
                        "no example recipes belong to {}; a recipe with every key is written by: "
                        "{} init --keys all.toml",
                        program.string(), base::command_name());
}

std::string read_example(const fs::path& file) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.bad() && !text.empty()) return text;
  throw base::UserError(base::ExitCode::storage_io, "cannot read the example {}", file.string());
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

// A file of an example, or all of a folder. What is there already stays if it is the same.
void copy_part(const fs::path& from, const fs::path& to) {
  if (fs::is_directory(from)) {
    for (const fs::path& entry : store::entries_of(from)) copy_part(entry, to / entry.filename());
    return;
  }
  if (fs::exists(to) && store::hash_file(to).hash == store::hash_file(from).hash) return;
  refuse_existing(to);
  store::make_directory(to.parent_path());
  store::copy_file(from, to);
}

// Copies the model and data that an example names as "recipes/…" to the folder of the recipe, and
// names them by their absolute path.
void copy_parts(const fs::path& folder, std::string& text, const fs::path& home) {
  constexpr std::string_view kPart = "= \"recipes/";
  for (auto at = text.find(kPart); at != std::string::npos; at = text.find(kPart, at + 1)) {
    const auto begin = at + kPart.size();
    const std::string part = text.substr(begin, text.find('"', begin) - begin);
    copy_part(folder / part, home / part);
  }
  std::string absolute = home.string();
  replace_all(absolute, "\\", "\\\\");
  replace_all(absolute, "\"", "\\\"");
  replace_all(text, kPart.data(), "= \"" + absolute + "/");
}

base::ExitCode list_examples(const std::vector<std::string>& words) {
  if (!words.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "init --list takes no name, and not {}; leave out one or the other",
                          fmt::join(words, " and "));
  }
  const fs::path folder = example_folder();
  for (const std::string& name : example_names(folder)) {
    const std::string line =
        fmt::format("{:<18}  {}", name, summary_of(read_example(folder / (name + ".toml"))));
    fmt::print("{}", folded_text(line, base::terminal_columns()));
  }
  fmt::print("copy one: {0} init NAME [FILE or FOLDER]; every key: {0} init --keys FILE\n",
             base::command_name());
  return base::ExitCode::done;
}

// `words`: the name of an example, the file to write or the folder for it; or only one of them.
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
    throw base::UserError(base::ExitCode::bad_input, "there is no example recipe {}; there are: {}",
                          example, fmt::join(names, ", "));
  }
  const bool into_folder = to.extension() != ".toml";
  if (into_folder) to /= example + ".toml";
  refuse_existing(to);
  if (into_folder) store::make_directory(to.parent_path());
  std::string text = read_example(folder / (example + ".toml"));
  replace_all(text, "recipes/" + example + ".toml", base::shell_word(to.string()));
  replace_all(text, "./strait ", base::command_name() + " ");
  // In the source tree the example's own names are right.
  std::error_code none;
  const bool in_source_tree = fs::equivalent("recipes", folder, none);
  const fs::path home = fs::absolute(to).parent_path();
  // Into a folder that is not there the recipe cannot be written, either, and that says so.
  if (into_folder || (!in_source_tree && fs::exists(home))) copy_parts(folder, text, home);
  store::replace_file(to, text);
  const bool complete = text.find("# edit") == std::string::npos;
  fmt::print("{} is a copy of the example {}; {}, then: {}\n", to.string(), example,
             complete ? "look at it" : "edit the lines that say \"edit\"",
             base::strait_command("run", to));
  return base::ExitCode::done;
}

// The file to write for a flag that takes no name of an example.
fs::path only_file(const std::vector<std::string>& words, const char* flag, const fs::path& usual) {
  if (words.size() > 1) {
    throw base::UserError(base::ExitCode::bad_input,
                          "init {} takes one file to write, and not {}; leave all but one out",
                          flag, fmt::join(words, " and "));
  }
  fs::path to = words.empty() ? usual : fs::path(words[0]);
  refuse_existing(to);
  return to;
}

base::ExitCode write_all_keys(const std::vector<std::string>& words) {
  const fs::path to = only_file(words, "--keys", "all.toml");
  store::replace_file(to, recipe::recipe_reference());
  fmt::print("{} has every key with its default, its meaning and what is allowed\n", to.string());
  return base::ExitCode::done;
}

// strait-convert.py says what it prints.
base::ExitCode convert_recipe(const fs::path& from, const std::vector<std::string>& words) {
  static constexpr base::PythonScript kConverter = {
      "strait-convert.py", "reads the files of other tools", "the package PyYAML"};
  const fs::path to = only_file(words, "--from", from.stem().string() + ".toml");
  std::vector<std::string> command = base::start_of(kConverter);
  command.push_back(fs::absolute(from).string());
  const base::ProgramResult result = base::run_program(command, std::chrono::seconds(60));
  const auto answer = nlohmann::json::parse(result.out, nullptr, false);
  if (!result.succeeded() || !(answer.contains("recipe") || answer.contains("error"))) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "{} cannot be converted: {} (its Python is {}, which STRAIT_PYTHON changes)", from.string(),
        base::printable(result.error_line()), command[0]);
  }
  if (answer.contains("error")) {
    throw base::UserError(base::ExitCode::bad_input, "{}: {}", from.string(),
                          base::printable(answer["error"].get<std::string>()));
  }
  const std::string text = answer.at("recipe").get<std::string>();
  recipe::parse_recipe(text, "the recipe made of " + from.string());  // or says what is wrong
  store::replace_file(to, text);
  for (const nlohmann::json& line : answer.at("without")) {
    fmt::print("no counterpart: {}\n", line.get<std::string>());
  }
  fmt::print("{} is made of {}; edit the lines that say \"edit\", then: {}\n", to.string(),
             from.string(), base::strait_command("plan", to));
  return base::ExitCode::done;
}

}  // namespace

void add_init(CLI::App& cli, Command& command) {
  struct Options {
    std::optional<std::string> name;
    std::optional<std::string> file;
    std::optional<std::string> from;
    bool list = false;
    bool keys = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* verb = cli.add_subcommand("init", "copy an example recipe to begin from");
  verb->add_option("name", options->name, "an example; absent: quickstart");
  verb->add_option("file", options->file,
                   "to write, also without a name, or the folder for it, its model and its data; "
                   "absent: NAME.toml, for --keys all.toml, for --from that file's name");
  CLI::Option* list = verb->add_flag("--list", options->list, "list the examples");
  CLI::Option* keys = verb->add_flag("--keys", options->keys,
                                     "write every key with its default and meaning instead")
                          ->excludes(list);
  verb->add_option("--from", options->from,
                   "convert this YAML of axolotl, LLaMA-Factory or TRL instead")
      ->excludes(list)
      ->excludes(keys);
  verb->callback([options, &command] {
    command.run = [options] {
      std::vector<std::string> words;
      for (const auto& word : {options->name, options->file}) {
        if (word) words.push_back(*word);
      }
      if (options->list) return list_examples(words);
      if (options->from) return convert_recipe(*options->from, words);
      return options->keys ? write_all_keys(words) : copy_example(words);
    };
  });
}

}  // namespace strait::cli
