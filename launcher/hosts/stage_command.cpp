#include "launcher/hosts/stage_command.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxopts.hpp>
#include <iostream>
#include <sstream>
#include <thread>

#include "framework/file_descriptor.h"
#include "launcher/base/generation_lock.h"
#include "launcher/base/machine.h"
#include "launcher/base/own_program.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/process_identity.h"
#include "launcher/base/read_all.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_agent.h"
#include "launcher/hosts/host_inspection.h"
#include "launcher/hosts/join_ticket.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Long, because the launcher waits for the greetings of all hosts before it sends jobs.
constexpr auto kJobLimit = std::chrono::seconds(180);
constexpr std::uint32_t kMaxJobBytes = 64U << 20U;
constexpr auto kLoadLimit = std::chrono::seconds(20);  // libtorch from a slow disk
constexpr std::size_t kMaxTokenBytes = 16U << 20U;
constexpr std::chrono::seconds kTokenLimit{60};

// Without the connection an error cannot be reported.
void write_or_exit(int output, const std::string& line) {
  if (!base::write_all(output, std::as_bytes(std::span(line)))) {
    ::_exit(number(base::ExitCode::peer_lost));
  }
}

std::string read_request(int input) {
  using State = base::PrefixedText::State;
  base::PrefixedText read =
      base::read_length_prefixed(input, kMaxJobBytes, Clock::now() + kJobLimit);
  switch (read.state) {
    case State::whole:
      return std::move(read.text);
    case State::timed_out:
      throw base::UserError(base::ExitCode::stalled,
                            "the launcher sent no job within {} s after the greeting",
                            std::chrono::seconds(kJobLimit).count());
    case State::too_long:
      throw base::UserError(base::ExitCode::mismatch,
                            "a job of {} bytes was announced; at most {} are possible", read.size,
                            kMaxJobBytes);
    case State::ended:
    case State::unreadable:
      break;
  }
  throw base::UserError(base::ExitCode::peer_lost,
                        "the launcher disconnected before it sent a job");
}

AgentGreeting greeting_of_this_host() {
  AgentGreeting greeting;
  greeting.build = base::build_id();
  greeting.host_name = base::own_host();
  if (const char* connection = std::getenv("SSH_CONNECTION")) {
    // "their address, their port, our address, our port"
    std::istringstream words(connection);
    std::string port;
    words >> greeting.caller >> port >> greeting.reached;
  }
  greeting.clock = base::unix_seconds();
  return greeting;
}

// The agent's log. UserError: the agent cannot work here.
FileDescriptor open_agent_log(const AgentJob& job) {
  const fs::path directory = agent_directory(job.directory);
  check_host_directory(directory);
  const fs::path logs = host_run_directory(directory, job.run_name, job.run) / base::kLogsFolder;
  std::error_code failed;
  fs::create_directories(logs, failed);
  const fs::path file = logs / kAgentLog;
  FileDescriptor log(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!log.open()) {
    throw base::UserError(base::ExitCode::storage_io, "cannot write {}: {}", file.string(),
                          std::strerror(errno));
  }
  return log;
}

// Called before the answer to the launcher: an agent that fails later can only log the error.
void end_former_agent(const AgentJob& job, const FileDescriptor& log) {
  const fs::path directory = agent_directory(job.directory);
  for (const std::string& ended : base::end_former_processes(
           host_run_directory(directory, job.run_name, job.run), job.host, job.generation)) {
    ::dprintf(log.number(), "ended %s\n", ended.c_str());
  }
}

// In the agent's process: closes everything of ssh's session, because sshd waits until all ends of
// its pipes are closed.
void detach_from_ssh(const FileDescriptor& log) {
  ::setsid();
  const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.number(), 0);
  ::dup2(log.number(), 1);
  ::dup2(log.number(), 2);
  ::syscall(SYS_close_range, 3U, ~0U, 0U);
  // The run continues when the user logs out or removes the current directory.
  ::signal(SIGHUP, SIG_IGN);
  [[maybe_unused]] const int stayed = ::chdir("/");
}

// Returns when the launcher disconnects. The open connection shows that this host is alive.
void hold_connection(int input) {
  const auto deadline = Clock::now() + kJobLimit;
  while (true) {
    const int left = base::milliseconds_until(deadline);
    if (left == 0) return;
    pollfd waited{input, POLLIN, 0};
    ::poll(&waited, 1, left);
    char ignored = 0;
    const ssize_t got = waited.revents == 0 ? 1 : ::read(input, &ignored, 1);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return;
  }
}

// Checks that stages could start here and lists their devices. Stages need libraries that this
// program does not.
void check_stage_program(HostInspection& inspection) {
  if (!inspection.objection.empty()) return;
  const base::ProgramResult answer =
      base::run_program({stage_program_here(), "--check"}, kLoadLimit);
  std::istringstream lines(answer.out);
  std::string first;
  std::getline(lines, first);
  if (answer.succeeded() && first == fmt::format("strait-stage {}", base::build_id())) {
    for (std::string line; std::getline(lines, line);) {
      const std::size_t space = line.find(' ');
      inspection.devices.emplace_back(line.starts_with("ok "), line.substr(space + 1));
    }
    return;
  }
  inspection.objection = fmt::format(
      "the libraries of stages cannot be loaded there ({}); install this build there with: strait "
      "install --hosts RECIPE",
      answer.succeeded() ? "it is " + base::printable(first) : answer.error_line());
  inspection.objection_code = base::ExitCode::mismatch;
}

base::ExitCode serve_ssh_request(int input, int output) {
  const std::string request = read_request(input);
  if (const auto asked = inspection_request_from(request)) {
    HostInspection inspection = inspect_this_host(*asked);
    check_stage_program(inspection);
    write_or_exit(output, to_line(inspection));
    return base::ExitCode::done;
  }
  AgentJob job = parse_agent_job(request);
  // The agent has another working directory.
  job.directory = agent_directory(job.directory).string();
  FileDescriptor log = open_agent_log(job);
  end_former_agent(job, log);
  const int agent = ::fork();
  if (agent < 0) {
    throw base::UserError(base::ExitCode::internal, "cannot fork: {}", std::strerror(errno));
  }
  if (agent == 0) {
    detach_from_ssh(log);
    log.release();  // closed above
    return run_agent(job);
  }
  write_or_exit(output, to_line(AgentAnswer{agent, 0, ""}));
  hold_connection(input);
  return base::ExitCode::done;
}

// A stack trace on a host helps no user.
base::ExitCode reported(const std::exception& error) {
  const base::Failure failure = base::describe_failure(error);
  spdlog::error("{}", failure.text);
  return failure.code;
}

std::string token_text(const std::string& token) {
  if (token == "-")
    return base::read_all(STDIN_FILENO, "the run token on stdin", kMaxTokenBytes, kTokenLimit);
  const FileDescriptor file(::open(token.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "cannot read the run token {}: {}; strait run writes one for each host",
                          token, std::strerror(errno));
  }
  return base::read_all(file.number(), "the run token " + token, kMaxTokenBytes, kTokenLimit);
}

// The other end of SshSession. Greets on `output`, reads a request on `input`, checks that
// this host can be used, and forks: the child is the agent, in its own session, which survives the
// end of ssh. Answers with its pid or with the error, and returns the exit code: in the parent when
// the launcher has disconnected, in the agent when its run has ended.
base::ExitCode run_agent_over_ssh(int input, int output) {
  try {
    write_or_exit(output, to_line(greeting_of_this_host()));
    return serve_ssh_request(input, output);
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    try {
      write_or_exit(output, to_line(AgentAnswer{0, number(failure.code), failure.text}));
    } catch (const std::exception& unheard) {
      return reported(unheard);  // the connection is lost, which often caused the first error
    }
    return failure.code;
  }
}

// `strait join TOKEN`: reads the ticket from the file, or from stdin for "-".
base::ExitCode join_with_token(const std::string& token) {
  try {
    const JoinTicket ticket = parse_join_ticket(token_text(token));
    if (ticket.build != base::build_id()) {
      throw base::UserError(
          base::ExitCode::mismatch,
          "the run token is of build {}, but this is build {}; install the launcher's build here",
          ticket.build, base::build_id());
    }
    return join_run(ticket);
  } catch (const std::exception& error) {
    return reported(error);
  }
}

// The agent of a host that joins. It ends with its parent, and its stages with it. Its parent tells
// it to leave: a scheduler that sends SIGTERM to all processes would tell it twice.
base::ExitCode run_agent_of_parent(int input) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  try {
    const AgentJob job = parse_agent_job(read_request(input));
    std::thread([input] {
      for (char ignored = 0; ::read(input, &ignored, 1) > 0 || errno == EINTR;) continue;
      ::_exit(number(base::ExitCode::peer_lost));
    }).detach();
    check_host_directory(agent_directory(job.directory));
    return run_agent(job);
  } catch (const std::exception& error) {
    return reported(error);
  }
}

}  // namespace

// Secrets arrive on stdin, because other users of the host can read argv and the environment.
int run_stage_command(int argc, char** argv,
                      const std::function<base::ExitCode(TorchCommand)>& compute) {
  // As in strait: if SIGCHLD were ignored, an agent could not wait for its processes.
  std::signal(SIGCHLD, SIG_DFL);
  // Without this signal, a write beyond the limit of a file (ulimit -f) fails with an error that
  // names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  cxxopts::Options options(
      "strait-stage",
      "One stage of a run, or the agent of a host. Started by strait; people call strait join.");
  options.add_options()("version", "print the build and exit")("help", "print this and exit")(
      "agent", "run this host's agent; called over ssh")(
      "run-agent", "run this host's agent; its job is on stdin")(
      "join", "join the run of a token (-: on stdin) with this host; called by strait",
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
  try {
    base::raise_open_files();
    if (given.count("agent") != 0) return number(run_agent_over_ssh(STDIN_FILENO, STDOUT_FILENO));
    if (given.count("run-agent") != 0) return number(run_agent_of_parent(STDIN_FILENO));
    if (given.count("join") != 0) return number(join_with_token(given["join"].as<std::string>()));
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
  base::set_thread_waits();
  // By default glibc takes tensors of up to 32 MiB from its heap, where the logits of a large
  // vocabulary leave holes that nothing else fits in (tests/bench/RESULTS.md). Larger than 8 MiB
  // they are mapped. A fixed limit also fixes the one from which free memory is returned, so both
  // are set. What the environment has already is kept.
  ::setenv("MALLOC_MMAP_THRESHOLD_", "8388608", 0);
  ::setenv("MALLOC_TRIM_THRESHOLD_", "67108864", 0);
  // What is mapped is cleared page by page when it is first written, which is most of the time of a
  // sum of two such tensors. libtorch asks for pages of 2 MiB then (tests/bench/RESULTS.md).
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
  ::execv(program.c_str(), argv);
  spdlog::error("cannot run {}: {}; it must be in the folder of strait-stage: install both again",
                program, std::strerror(errno));
  return base::ExitCode::mismatch;
}

}  // namespace strait::hosts
