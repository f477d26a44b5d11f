#include "launcher/cli/man_page.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"

namespace strait::cli {
namespace {

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

void add_option(const CLI::App& app, const CLI::Option& option, std::string& page) {
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
      if (option->get_positional() == positional && !hidden) add_option(app, *option, page);
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

}  // namespace

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

}  // namespace strait::cli
