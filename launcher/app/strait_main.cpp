#include "launcher/app/strait_main.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include "launcher/app/command_line.h"
#include "launcher/app/verbs.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/control/stop_signals.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/process/thread_waits.h"

namespace strait {
namespace {

// Verbs that compute with the threads of a stage.
bool computes_here(std::string_view verb) { return verb == "eval" || verb == "generate"; }

// If a parent has closed stdin, stdout or stderr, the next file that is opened gets that number,
// and what is printed is written into it.
void open_closed_streams() {
  int lowest = ::open("/dev/null", O_RDWR);
  while (lowest >= 0 && lowest <= STDERR_FILENO) lowest = ::open("/dev/null", O_RDWR);
  if (lowest >= 0) ::close(lowest);
}

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
  open_closed_streams();
  if (argc > 1 && computes_here(argv[1]) && process::set_thread_waits()) {
    // OpenMP's runtime has read the environment already: start again. Without that it only spins.
    ::execv(base::own_program().c_str(), argv);
  }
  // The parent may ignore it, and then the ends of processes that are started here would not be
  // seen.
  std::signal(SIGCHLD, SIG_DFL);
  control::StopSignals::announce();
  CLI::App cli("strait fine-tunes a transformer that is split over machines joined by slow links.",
               "strait");
  cli.set_version_flag("--version", std::string("strait ") + base::build_id());
  cli.require_subcommand(0, 1);  // 0: checked below, where it is called a verb
  app::Command command;
  for (const auto add :
       {app::add_init, app::add_prepare, app::add_plan, app::add_probe, app::add_doctor,
        app::add_install, app::add_run, app::add_run_allocated, app::add_join, app::add_resume,
        app::add_status, app::add_watch, app::add_logs, app::add_stop, app::add_eval,
        app::add_generate, app::add_export, app::add_checkpoint}) {
    add(cli, command);
  }
  try {
    app::check_encoding({argv, static_cast<std::size_t>(argc)});
    if (argc > 1) app::check_verb(cli, argv[1]);
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
    if (error.get_exit_code() == 0) return cli.exit(error);  // help and version are "errors", too
    std::fprintf(stderr, "strait: %s\n",
                 base::printable_lines(app::usage_fault(cli, error)).c_str());
    return number(base::ExitCode::bad_input);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}
