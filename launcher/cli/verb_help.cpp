#include <fmt/chrono.h>

#include <cctype>
#include <charconv>
#include <ctime>

#include "framework/trace/step_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/run_list.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::cli {
namespace {

using recipe::RecipeKey;

// The words of docs/ that are no keys.
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> kWords = {{
    {"recipe", "one TOML file with all that a run needs"},
    {"plan", "a recipe resolved: which process has which layers, on which host, over which links"},
    {"run", "one execution of a plan; its directory is runs/NAME"},
    {"stage", "the layers of one process; a replica is split into stages"},
    {"replica", "a copy of the whole pipeline, which trains on other rows"},
    {"process", "stage.replica: 1.0 is stage 1 of replica 0"},
    {"boundary", "what activations and gradients cross between two stages; 0.0>1.0 is one"},
    {"codec", "how values are encoded to cross a boundary: raw, fixed, delta, ..."},
    {"step", "an update of the weights"},
    {"micro-batch", "the rows of one forward; a step has several"},
    {"bubble", "share of a step in which a stage waits"},
    {"checkpoint", "all that a run needs to go on from a step with the same bits"},
    {"generation", "the number of a run's start; processes of an earlier one are refused"},
    {"host", "a machine that processes run on, as hosts.list names it"},
    {"launcher", "the process of strait run: it starts the others, and none of them trains in it"},
    {"epoch", "all training rows once; a sample comes back in the next one"},
    {"target", "a token that the model learns to predict; others are only read"},
    {"staleness", "steps between a gradient and the update that it reaches in all replicas"},
    {"forecast", "how long a step takes by the plan's simulator; strait status shows what differs"},
    {"activation-cache", "what delta keeps of each sample, so that its next visit sends a change"},
    {"tie", "the link over which two stages share one table of tokens"},
    {"off-load", "masters and moments in host memory or on the disk; see train.offload"},
    {"relay", "a host that passes on the bytes of two others that cannot connect"},
}};

std::string text_of_key(const RecipeKey& key) {
  const recipe::RecipeValue usual = key.get(recipe::Recipe{});
  return fmt::format("{}: {}\n  value: {}\n  default: {}\n", key.name, key.help, allowed_by(key),
                     usual.is_null() ? "absent" : usual.dump());
}

// Text that man(7) shows as it is: a point or an apostrophe begins no command.
std::string roff(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const bool starts = safe.empty() || safe.back() == '\n';
    if (starts && (c == '.' || c == '\'')) safe += "\\&";
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else if (c != '\n' || !starts) {
      safe += c;
    }
  }
  while (safe.ends_with('\n')) safe.pop_back();
  return safe;
}

void add_option_text(const CLI::App& app, const CLI::Option& option, std::string& page) {
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(app.get_formatter());
  const bool positional = option.get_positional();
  page += fmt::format(".TP\n\\fB{}\\fR{}\n", roff(formatter->make_option_name(&option, positional)),
                      roff(formatter->make_option_opts(&option)));
  const std::string meaning = roff(option.get_description());
  if (!meaning.empty()) page += meaning + "\n";
}

void add_options(const CLI::App& app, std::string& page) {
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : app.get_options()) {
      const bool hidden = option->get_group().empty() || option == app.get_help_ptr();
      if (option->get_positional() == positional && !hidden) add_option_text(app, *option, page);
    }
  }
}

// A verb and its parts, each under the words that call it.
void add_verb(const CLI::App& app, const std::string& called, std::string& page) {
  const auto parts = app.get_subcommands(
      [](const CLI::App* part) { return !part->get_group().empty() || part->get_name().empty(); });
  const bool has_parts =
      std::ranges::any_of(parts, [](const CLI::App* part) { return !part->get_name().empty(); });
  std::string words = called;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) words += " " + option->get_name(/*positional=*/true);
  }
  if (!has_parts) {
    page += fmt::format(".SS {}\n{}\n", roff(words), roff(app.get_description()));
    add_options(app, page);
    // Options of which one is needed form a group without a name.
    for (const CLI::App* group : parts) add_options(*group, page);
    if (!app.get_footer().empty()) page += ".PP\n" + roff(app.get_footer()) + "\n";
  }
  for (const CLI::App* part : parts) {
    if (!part->get_name().empty()) add_verb(*part, called + " " + part->get_name(), page);
  }
}

// The manual page of the program, or of one verb, in the language of man(7): what --help says, and
// the exit codes. `called`: "strait", "strait run". `date`: "2026-11-29".
std::string man_page(const CLI::App& app, const std::string& called, const std::string& date) {
  std::string name = called;
  std::ranges::replace(name, ' ', '-');
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string page = fmt::format(".TH {} 1 \"{}\" \"strait {}\" \"User Commands\"\n", title, date,
                                 roff(base::build_id()));
  std::string summary = app.get_description();
  if (summary.starts_with(called + " ")) summary.erase(0, called.size() + 1);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(summary));
  page += fmt::format(".SH SYNOPSIS\n.B {}\n{}[\\fIoption\\fR ...]\n", roff(called),
                      called == "strait" ? "\\fIverb\\fR " : "");
  page += ".SH DESCRIPTION\nEach verb says with \\fB\\-\\-help\\fR what is described here.\n";
  add_verb(app, called, page);
  page += ".SH EXIT STATUS\n";
  constexpr int kMostCode = 255;
  for (int code = 0; code <= kMostCode; ++code) {
    const char* meaning = base::meaning(static_cast<base::ExitCode>(code));
    if (meaning != nullptr) page += fmt::format(".TP\n.B {}\n{}\n", code, roff(meaning));
  }
  page +=
      ".SH FILES\n.TP\n.I runs/NAME\nthe directory of a run: plan, metrics, events, logs, "
      "checkpoints, report.html\n"
      ".SH EXAMPLES\n.EX\nstrait init quickstart\nstrait run quickstart.toml\n"
      "strait status quickstart\n.EE\n"
      ".SH SEE ALSO\n\\fBstrait explain\\fR \\fIword\\fR explains a key of recipes, an exit "
      "code, a metric or a word;\n\\fBstrait init \\-\\-keys\\fR \\fIfile\\fR writes every key.\n";
  return page;
}

// The key of this name, those of this table, or those whose last part it is.
std::string text_of_keys(std::string_view word) {
  std::string text;
  for (const RecipeKey& key : recipe::recipe_keys()) {
    const bool in_table =
        key.name.starts_with(word) && key.name.size() > word.size() && key.name[word.size()] == '.';
    if (key.name == word || in_table || recipe::last_part_of(key.name) == word) {
      text += text_of_key(key);
    }
  }
  return text;
}

template <class S>
void add_metrics(std::string_view word, std::string_view where, std::string& text) {
  trace::each_metric<S>([&](const auto& one) {
    const trace::MetricInfo& info = one.info;
    if (info.key == nullptr || info.key != word || *info.meaning == '\0') return;
    text += fmt::format("{}, a metric of {}: {}\n", info.key, where, info.meaning);
  });
}

std::string text_of_code(std::string_view word) {
  int code = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), code);
  if (error != std::errc{} || end != word.data() + word.size()) return "";
  const char* known = base::meaning(static_cast<base::ExitCode>(code));
  if (known == nullptr) return "";
  return fmt::format("exit code {}: {}; what to do: docs/troubleshooting.md#exit-codes\n", code,
                     known);
}

std::vector<std::string_view> all_words() {
  std::vector<std::string_view> words;
  words.reserve(recipe::recipe_keys().size());
  for (const RecipeKey& key : recipe::recipe_keys()) words.push_back(key.name);
  for (const auto& [word, meaning] : kWords) words.push_back(word);
  const auto add = [&words](const auto& one) {
    if (one.info.key != nullptr) words.emplace_back(one.info.key);
  };
  trace::each_metric<trace::StepMetrics>(add);
  trace::each_metric<trace::BoundaryMetrics>(add);
  trace::each_metric<trace::SyncMetrics>(add);
  return words;
}

const CLI::App* verb_named(const CLI::App& in, const std::string& name) {
  for (const CLI::App* verb : in.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

base::ExitCode show_help(const CLI::App& cli, const std::vector<std::string>& words, bool man) {
  const CLI::App* app = &cli;
  std::string called = man ? "strait" : base::command_name();
  for (const std::string& word : words) {
    const CLI::App* const next = verb_named(*app, word);
    if (next == nullptr) {
      if (app == &cli) check_verb(cli, word);
      throw base::UserError(base::ExitCode::bad_input,
                            fmt::format("{} has no part \"{}\"; it has: {}", called, word,
                                        fmt::join(verbs_of(*app), ", ")));
    }
    app = next;
    called += " " + word;
  }
  if (man) {
    fmt::print("{}", man_page(*app, called, fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)))));
    return base::ExitCode::done;
  }
  // App::help() of the program would show the verb that was called, this one.
  fmt::print("{}", app->get_formatter()->make_help(app, called, CLI::AppFormatMode::Normal));
  return base::ExitCode::done;
}

// Each asks `strait complete` with the words up to the cursor.
constexpr const char* kBash = R"sh(_strait() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(strait complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
  [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o default -F _strait strait
)sh";
constexpr const char* kZsh = R"sh(#compdef strait
_strait() {
  local -a found
  found=(${(f)"$(strait complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  compadd -S '' -a found || _files
}
compdef _strait strait
)sh";
constexpr const char* kFish =
    R"sh(complete -c strait -a '(strait complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
)sh";

std::string completion_script(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

}  // namespace

std::string explanation(const std::string& given) {
  const std::string word = CLI::detail::to_lower(given);
  std::string text = text_of_keys(word);
  add_metrics<trace::StepMetrics>(word, "a step", text);
  add_metrics<trace::BoundaryMetrics>(word, "a boundary", text);
  add_metrics<trace::SyncMetrics>(word, "the exchange between replicas", text);
  for (const auto& [name, meaning] : kWords) {
    if (name == word) text += fmt::format("{}: {}\n", name, meaning);
  }
  text += text_of_code(word);
  for (const RecipeKey& key : recipe::recipe_keys()) {
    if (allowed_by(key).find('"' + word + '"') == std::string::npos) continue;
    text += fmt::format("\"{}\" is a value of {}", word, text_of_key(key));
  }
  if (!text.empty()) return text;
  const std::string_view near = base::nearest_name(word, all_words());
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("\"{}\" is no key of a recipe, metric, exit code or word of strait{}", word,
                  near.empty() ? "; strait init --keys lists all keys"
                               : fmt::format("; did you mean {}?", near)));
}

std::vector<std::string> completions(const CLI::App& cli, const std::vector<std::string>& words) {
  const std::string last = words.empty() ? "" : words.back();
  const CLI::App* app = &cli;
  std::vector<std::string> before(words.begin(), words.empty() ? words.end() : words.end() - 1);
  for (const std::string& word : before) {
    if (const CLI::App* const next = verb_named(*app, word)) app = next;
  }
  std::vector<std::string> found;
  if (!before.empty() && before.back() == "--set") {
    for (const RecipeKey& key : recipe::recipe_keys()) found.push_back(key.name + "=");
  } else if (last.starts_with('-')) {
    found = flags_of(*app);
  } else if (const std::vector<std::string> parts = verbs_of(*app); !parts.empty()) {
    found = parts;
  } else if (app->get_name() == "help") {
    found = verbs_of(cli);
  } else if (app->get_name() == "explain") {
    for (const std::string_view word : all_words()) found.emplace_back(word);
  } else if (app->get_option_no_throw("run") != nullptr ||
             app->get_option_no_throw("runs") != nullptr) {
    for (const ListedRun& run : runs_in("runs")) found.push_back(run.path.string());
  }
  std::erase_if(found, [&last](const std::string& one) { return !one.starts_with(last); });
  return found;
}

void add_help(CLI::App& cli, Command& command) {
  struct Options {
    std::vector<std::string> words;
    bool man = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* help = cli.add_subcommand("help", "show how a verb is used");
  help->add_option("verb", options->words,
                   "such as run, or checkpoint list; absent: the list of verbs");
  help->add_flag("--man", options->man, "as a manual page: strait help --man run | man -l -");
  help->callback([&cli, options, &command] {
    command.run = [&cli, options] { return show_help(cli, options->words, options->man); };
  });

  const auto word = std::make_shared<std::string>();
  CLI::App* explain =
      cli.add_subcommand("explain", "explain a key of recipes, an exit code, a metric or a word");
  explain->add_option("word", *word, "such as train.clip, clip, 20, idle or boundary")->required();
  explain->callback([word, &command] {
    command.run = [word] {
      fmt::print("{}", folded_text(explanation(*word), base::terminal_columns()));
      return base::ExitCode::done;
    };
  });

  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      cli.add_subcommand("completion", "print what makes a shell complete verbs, keys and runs");
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("bash: source <(strait completion bash), as a line of ~/.bashrc");
  completion->callback([shell, &command] {
    command.run = [shell] {
      fmt::print("{}", completion_script(*shell));
      return base::ExitCode::done;
    };
  });

  CLI::App* complete = cli.add_subcommand("complete", "what may follow these words")->group("");
  const auto words = std::make_shared<std::vector<std::string>>();
  complete->add_option("words", *words);
  complete->callback([&cli, words, &command] {
    command.run = [&cli, words] {
      for (const std::string& one : completions(cli, *words)) fmt::print("{}\n", one);
      return base::ExitCode::done;
    };
  });
}

}  // namespace strait::cli
