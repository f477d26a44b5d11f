#include "launcher/cli/strait_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "framework/sync/methods.h"
#include "launcher/base/machine.h"
#include "launcher/base/stop_signals.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/status_text.h"
#include "launcher/cli/verbs.h"
#include "schedules/schedule.h"

namespace {

// If a parent has closed stdin, stdout or stderr, the next file that is opened gets that number,
// and what is printed is written into it.
void open_closed_streams() {
  int lowest = ::open("/dev/null", O_RDWR);
  while (lowest >= 0 && lowest <= STDERR_FILENO) lowest = ::open("/dev/null", O_RDWR);
  if (lowest >= 0) ::close(lowest);
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return strait::cli::folded_text(CLI::Formatter::make_help(app, std::move(name), mode),
                                    strait::base::terminal_columns());
  }
};

}  // namespace

void strait::cli::flush_output() {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(),
                          "cannot write to stdout");
}

int strait::cli::run_command_line(int argc, char** argv, const std::function<Compute()>& load) {
  open_closed_streams();
  // The parent may ignore it, and then the ends of processes that are started here would not be
  // seen.
  std::signal(SIGCHLD, SIG_DFL);
  base::StopSignals::announce();
  CLI::App app("strait fine-tunes a transformer that is split over machines joined by slow links.",
               "strait");
  app.formatter(std::make_shared<HelpFormatter>());  // of its verbs, too
  app.set_version_flag("--version", std::string("strait ") + base::build_id());
  app.require_subcommand(0, 1);  // 0: checked below, where it is called a verb
  Command command;
  for (const auto add :
       {add_init,   add_prepare,    add_plan,    add_probe,    add_doctor, add_install,
        add_run,    add_launch,     add_join,    add_resume,   add_status, add_watch,
        add_logs,   add_stop,       add_eval,    add_generate, add_chat,   add_serve,
        add_export, add_checkpoint, add_compare, add_track,    add_help}) {
    add(app, command);
  }
  try {
    base::raise_open_files();
    check_encoding({argv, static_cast<std::size_t>(argc)});
    if (argc > 1) check_verb(app, argv[1]);
    app.parse(argc, argv);
    if (!command.run && !command.compute) throw CLI::RequiredError("a verb");
    const Compute compute = load();
    const base::ExitCode code = command.run ? command.run() : compute(*command.compute);
    // A run ends as its files say, whatever became of the lines on its console.
    const bool runs = command.compute && (std::holds_alternative<RunFlags>(*command.compute) ||
                                          std::holds_alternative<ResumeFlags>(*command.compute));
    if (code == base::ExitCode::done && !runs) flush_output();
    return number(code);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version are "errors", too
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(usage_fault(app, error)).c_str());
    return number(base::ExitCode::bad_input);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::fprintf(stderr, "strait: %s\n", base::printable_lines(failure.text).c_str());
    return number(failure.code);
  }
}

void strait::cli::exec_torch_program(char** argv, const ComputeRequest& request) {
  // They compute with the threads of a stage. OpenMP's runtime reads the environment when it is
  // loaded.
  if (std::holds_alternative<EvalFlags>(request) || std::holds_alternative<GenerateFlags>(request))
    base::set_thread_waits();
  const std::string program = base::own_program().parent_path() / "strait-torch";
  base::StopSignals::hold();
  ::execv(program.c_str(), argv);
  const int fault = errno;
  base::StopSignals::announce();
  throw base::UserError(
      base::ExitCode::mismatch,
      "cannot run {}: {}; it must be in the folder of strait: install strait as a whole", program,
      std::strerror(fault));
}

std::vector<std::string> strait::cli::names_without_torch(recipe::PartKind kind) {
  switch (kind) {
    case recipe::PartKind::schedule:
      return schedules::catalogue().names();
    case recipe::PartKind::codec:
      // Their catalogue links libtorch; a test compares.
      return {"raw", "fixed", "delta", "transform", "auto"};
    case recipe::PartKind::sync_method:
      break;
  }
  return sync::methods().names();
}
