#include "launcher/app/strait_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "framework/utf8.h"
#include "launcher/app/verbs.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/process/thread_waits.h"

namespace strait {
namespace {

// Paths and texts of a command get into files of JSON and TOML, which are UTF-8.
void check_encoding(std::span<char* const> arguments) {
  for (const char* argument : arguments) {
    if (is_utf8(argument)) continue;
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("the argument \"{}\" is not UTF-8", argument));
  }
  std::error_code gone;  // a folder that was removed has no path
  const std::string here = std::filesystem::current_path(gone).string();
  if (is_utf8(here)) return;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("the path of this folder, {}, is not UTF-8; call strait in another one", here));
}

// CLI11 would list all words of the line as not expected.
void check_verb(const CLI::App& cli, std::string_view word) {
  if (word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* verb : cli.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == word) return;
    if (!verb->get_group().empty()) names.push_back(verb->get_name());  // not a script's verb
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view near = base::nearest_name(word, known);
  throw base::UserError(base::ExitCode::bad_input,
                        fmt::format("\"{}\" is no verb; {}", word,
                                    near.empty() ? "strait --help lists them"
                                                 : fmt::format("did you mean {}?", near)));
}

// Verbs that compute with the threads of a stage.
bool computes_here(std::string_view verb) { return verb == "eval" || verb == "generate"; }

}  // namespace
}  // namespace strait

void strait::app::flush_output() {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(),
                          "cannot write to stdout");
}

int strait::strait_main(int argc, char** argv, OfferParts offer) {
  if (argc > 1 && computes_here(argv[1]) && process::set_thread_waits()) {
    // OpenMP's runtime has read the environment already: begin again. Else it spins, no more.
    ::execv(base::own_program().c_str(), argv);
  }
  // The parent may ignore it, and then the ends of processes that are started here would not be
  // seen.
  std::signal(SIGCHLD, SIG_DFL);
  CLI::App cli("strait fine-tunes a transformer that is split over machines joined by slow links.");
  cli.set_version_flag("--version", std::string("strait ") + base::build_id());
  cli.require_subcommand(0, 1);  // 0: checked below, where it is called a verb
  app::Command command;
  for (const auto add :
       {app::add_init, app::add_prepare, app::add_plan, app::add_probe, app::add_doctor,
        app::add_install, app::add_run, app::add_run_allocated, app::add_resume, app::add_status,
        app::add_watch, app::add_logs, app::add_stop, app::add_eval, app::add_generate,
        app::add_export, app::add_checkpoint}) {
    add(cli, command);
  }
  try {
    check_encoding({argv, static_cast<std::size_t>(argc)});
    if (argc > 1) check_verb(cli, argv[1]);
    cli.parse(argc, argv);
    plugin::offer_own_parts(offer);
    if (!command) throw CLI::RequiredError("a verb");
    const base::ExitCode code = command();
    // A run ends as its files say, whatever became of the lines on its console.
    constexpr std::array kRuns{"run", "resume", "run-allocated"};
    const bool runs =
        std::ranges::any_of(kRuns, [&](const char* verb) { return cli.got_subcommand(verb); });
    if (code == base::ExitCode::done && !runs) app::flush_output();
    return number(code);
  } catch (const CLI::ParseError& error) {
    const int code = cli.exit(error);  // help and version are "errors" too, with code 0
    return code == 0 ? 0 : number(base::ExitCode::bad_input);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}
