#include "launcher/cli/command_line.h"

#include "framework/utf8.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::cli {

// Groups of flags have no name.
std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty() && !verb->get_name().empty()) names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  // Options of which exactly one is needed form a group, which CLI11 stores as an app without a
  // name.
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    for (std::string& flag : flags_of(*group)) flags.push_back(std::move(flag));
  }
  return flags;
}

namespace {

// "; did you mean --set?", or nothing.
std::string proposal(std::string_view written, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view near = base::nearest_name(written, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

// The verb, or the verb's part, that the words have chosen, and how it is called.
struct Chosen {
  const CLI::App* app;
  std::string name;  // "checkpoint list"; empty: none
};

Chosen chosen_verb(const CLI::App& cli) {
  Chosen chosen{&cli, ""};
  for (auto next = cli.get_subcommands(); !next.empty(); next = chosen.app->get_subcommands()) {
    chosen.app = next.front();
    chosen.name += (chosen.name.empty() ? "" : " ") + chosen.app->get_name();
  }
  return chosen;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word.front() == '-' && word != "--";
}

std::string unknown_flag(const Chosen& chosen, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  const std::vector<std::string> known = flags_of(*chosen.app);
  if (!chosen.name.empty() && std::ranges::find(known, flag) != known.end()) {
    return fmt::format("{} comes after its verb", flag);
  }
  return fmt::format("{} has no flag {}{}", chosen.name.empty() ? "strait" : chosen.name, flag,
                     proposal(flag, known));
}

// Words that no flag and no argument of the verb takes.
std::string surplus(const Chosen& chosen, const std::vector<std::string>& left) {
  if (const auto flag = std::ranges::find_if(left, is_flag); flag != left.end()) {
    return unknown_flag(chosen, *flag);
  }
  const std::vector<std::string> parts = verbs_of(*chosen.app);
  if (!parts.empty() && !chosen.name.empty()) {
    return fmt::format("{} has no part \"{}\"{}", chosen.name, left.front(),
                       proposal(left.front(), parts));
  }
  return fmt::format("\"{}\" is one argument too many", left.front());
}

std::string missing(const Chosen& chosen, const std::string& sentence) {
  if (const auto parts = verbs_of(*chosen.app); !parts.empty()) {
    return fmt::format("{} needs one of: {}", chosen.name, fmt::join(parts, ", "));
  }
  for (const CLI::Option* option : chosen.app->get_options()) {
    if (option->get_positional() && sentence.starts_with(option->get_name() + " is")) {
      return fmt::format("{} needs an argument, {}: {}", chosen.name, option->get_name(),
                         option->get_description());
    }
  }
  constexpr std::string_view kOneOf = "Exactly 1 option from [";
  if (sentence.starts_with(kOneOf)) {
    std::string names = sentence.substr(kOneOf.size(), sentence.find(']') - kOneOf.size());
    return fmt::format("{} needs one of: {}", chosen.name, names.replace(names.find(','), 1, ", "));
  }
  return fmt::format("{}: {}", chosen.name, sentence);
}

}  // namespace

void check_encoding(std::span<char* const> words) {
  for (const char* word : words) {
    if (is_utf8(word)) continue;
    throw base::UserError(base::ExitCode::bad_input, "the argument \"{}\" is not UTF-8", word);
  }
  std::error_code gone;  // a folder that was removed has no path
  const std::string here = std::filesystem::current_path(gone).string();
  if (is_utf8(here)) return;
  throw base::UserError(base::ExitCode::bad_input,
                        "the path of this folder, {}, is not UTF-8; call strait in another one",
                        here);
}

// The library would list all words of the line as not expected.
void check_verb(const CLI::App& cli, std::string_view word) {
  if (word.starts_with('-')) return;
  const auto known = cli.get_subcommands([](const CLI::App*) { return true; });
  if (std::ranges::any_of(known, [&](const CLI::App* verb) { return verb->get_name() == word; })) {
    return;
  }
  const std::string near = proposal(word, verbs_of(cli));
  throw base::UserError(
      base::ExitCode::bad_input, "\"{}\" is not a verb{}", word,
      near.empty() ? fmt::format("; {} --help lists them", base::command_name()) : near);
}

std::string usage_fault(const CLI::App& cli, const CLI::Error& error) {
  const Chosen chosen = chosen_verb(cli);
  if (chosen.name.empty() && cli.remaining().empty()) {
    return fmt::format("a verb is missing; {} --help lists them", base::command_name());
  }
  // First: a flag that is mistyped mostly is the one that is missing, too.
  const std::vector<std::string> left = cli.remaining(true);
  const std::string sentence = error.what();
  const std::string fault = !left.empty() ? surplus(chosen, left)
                            : dynamic_cast<const CLI::RequiredError*>(&error) != nullptr
                                ? missing(chosen, sentence)
                                : fmt::format("{}: {}", chosen.name, sentence);
  return fmt::format("{}; see: {}{}{} --help", fault, base::command_name(),
                     chosen.name.empty() ? "" : " ", chosen.name);
}

}  // namespace strait::cli
