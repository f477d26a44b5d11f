#include "launcher/agent/stage_command.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <cxxopts.hpp>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include "launcher/agent/agent_entry.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/process/thread_waits.h"

namespace strait::agent {

// Secrets arrive on stdin, because other users of the host can read argv and the environment.
int run_stage_command(int argc, char** argv,
                      const std::function<base::ExitCode(TorchCommand)>& compute) {
  // As in strait: the ends of processes that an agent starts would not be seen.
  std::signal(SIGCHLD, SIG_DFL);
  // A file is as large as allowed (ulimit -f): the write fails, and its error names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  cxxopts::Options options(
      "strait-stage",
      "One stage of a run, or the agent of a host. Started by strait; people call strait join.");
  options.add_options()("version", "print the build and exit")("help", "print this and exit")(
      "agent", "run this host's agent; called over ssh")(
      "join",
      "join the run of a token (-: on stdin) with this host; called by strait join and srun",
      cxxopts::value<std::string>(), "FILE")("measure", "measure this host; called by its agent")(
      "check", "load all that a stage needs, print the build and exit");
  TorchCommand command = TorchCommand::stage;
  cxxopts::ParseResult given;
  try {
    given = options.parse(argc, argv);
    if (given.count("help") != 0) {
      std::cout << options.help() << '\n';
      return 0;
    }
    if (given.count("version") != 0) {
      std::cout << "strait-stage " << base::build_id() << '\n';
      return 0;
    }
    if (given.count("measure") != 0) command = TorchCommand::measure;
    if (given.count("check") != 0) command = TorchCommand::check;
  } catch (const cxxopts::exceptions::exception& error) {
    std::cerr << "strait-stage: " << error.what() << "; --help lists the options\n";
    return number(base::ExitCode::bad_input);
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("strait-stage"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  if (given.count("agent") != 0) return number(run_agent_over_ssh(STDIN_FILENO, STDOUT_FILENO));
  if (given.count("join") != 0)
    return number(run_agent_from_token(given["join"].as<std::string>()));
  try {
    return number(compute(command));
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    std::cerr << "strait-stage: " << base::printable_lines(failure.text) << '\n';
    return number(failure.code);
  }
}

base::ExitCode exec_torch_program(char** argv) {
  const std::filesystem::path self = base::own_program();
  const std::string program = self.parent_path() / "strait-stage-torch";
  process::set_thread_waits();
  // By default glibc takes tensors of up to 32 MiB from its heap, where the logits of a large
  // vocabulary leave holes that nothing else fits in (tests/bench/RESULTS.md). Larger than 16 MiB
  // they are mapped. A fixed limit also fixes the one from which free memory is returned, so both
  // are set. What the environment has already is kept.
  ::setenv("MALLOC_MMAP_THRESHOLD_", "16777216", 0);
  ::setenv("MALLOC_TRIM_THRESHOLD_", "67108864", 0);
  ::execv(program.c_str(), argv);
  spdlog::error("cannot run {}: {}; it belongs beside strait-stage: install both again", program,
                std::strerror(errno));
  return base::ExitCode::mismatch;
}

}  // namespace strait::agent
