#include "launcher/hosts/host_agent.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <fstream>

#include "framework/mutex.h"
#include "framework/net/node.h"
#include "framework/store/memory_directory.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/backend.h"
#include "launcher/base/generation_lock.h"
#include "launcher/base/launcher_links.h"
#include "launcher/base/own_program.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/stop_signals.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/path_service.h"
#include "launcher/hosts/transfer_agent.h"
#include "launcher/hosts/workers.h"
#include "launcher/recipe/run_files.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Ends of processes are noticed within this time.
constexpr auto kServeTick = std::chrono::milliseconds(50);
// Logs travel in few messages, and a user who follows them still sees lines within a second.
constexpr auto kLogEvery = std::chrono::milliseconds(500);
constexpr auto kFinalFlushTimeout = std::chrono::seconds(5);
// As long as RunHosts::kCallLimit: after that the launcher has given this host up.
constexpr auto kGreetingTimeout = std::chrono::seconds(30);
constexpr auto kStopCheck = std::chrono::milliseconds(200);

net::NodeOptions agent_node(const AgentJob& job) {
  net::NodeOptions options;
  options.name = job.name();
  options.run = job.run;
  options.generation = job.generation;
  options.keys = job.keys;
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  return options;
}

std::chrono::seconds hold_of(const AgentJob& job) { return std::chrono::seconds(job.hold); }

transfer::TransferAgentOptions transfer_options(const AgentJob& job,
                                                const std::filesystem::path& directory) {
  transfer::TransferAgentOptions options;
  options.store = directory / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(job.up_megabits.value_or(0));
  options.download_bytes_per_second = transfer::bytes_per_second(job.down_megabits.value_or(0));
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  return options;
}

// The transfer agent of a host: connected to the launcher, and to other hosts where the launcher
// lets one of the two fetch from the other.
class AgentTransfer {
 public:
  // `address`: where the others reach this host. Node and job outlive it.
  AgentTransfer(net::Node& node, const AgentJob& job, const std::filesystem::path& directory,
                std::string address);

  // TransferAgent::perform(), and how two hosts link. One thread.
  template <class Request>
  void perform(Request request, transfer::OnFileReply on_reply) {
    transfer_agent_.perform(std::move(request), std::move(on_reply));
  }
  void perform(const transfer::LinkWith& other, const transfer::OnFileReply& on_reply);

 private:
  std::unique_ptr<net::Link> accept(const transfer::LinkWith& other);

  net::Node& node_;
  const AgentJob& job_;
  const std::string address_;
  // Keys of the linked agents, by name.
  std::map<net::ProcessName, std::string> linked_;
  // One for each link: a listener expects a peer once, and links may break.
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  transfer::TransferAgent transfer_agent_;
};

AgentTransfer::AgentTransfer(net::Node& node, const AgentJob& job,
                             const std::filesystem::path& directory, std::string address)
    : node_(node),
      job_(job),
      address_(std::move(address)),
      transfer_agent_(transfer_options(job, directory)) {
  const net::ProcessName launcher = net::ProcessName::coordinator();
  transfer_agent_.add_peer(
      launcher, "the launcher",
      node_.connect(job_.endpoint, transfer::transfer_link(launcher, job_.name(), launcher,
                                                           job_.launcher_key, hold_of(job_))));
}

std::unique_ptr<net::Link> AgentTransfer::accept(const transfer::LinkWith& other) {
  net::BindAddress bind;
  bind.host = address_;
  bind.first_port = static_cast<std::uint16_t>(job_.ports.first);
  bind.last_port = static_cast<std::uint16_t>(job_.ports.second);
  listeners_.push_back(node_.listen(bind));
  return listeners_.back()->expect(
      transfer::transfer_link(job_.name(), other.process, other.process, other.key, hold_of(job_)));
}

void AgentTransfer::perform(const transfer::LinkWith& other,
                            const transfer::OnFileReply& on_reply) {
  const net::ProcessName& name = other.process;
  // An agent that was started again has another key.
  if (std::exchange(linked_[name], other.key) == other.key && transfer_agent_.linked(name)) {
    return on_reply(ListensAt{});
  }
  const bool listens = other.endpoint.empty();
  try {
    auto link =
        listens ? accept(other)
                : node_.connect(other.endpoint, transfer::transfer_link(name, job_.name(), name,
                                                                        other.key, hold_of(job_)));
    transfer_agent_.add_peer(name, other.host, std::move(link));
    on_reply(ListensAt{listens ? listeners_.back()->endpoint() : ""});
  } catch (const net::LinkError& error) {
    spdlog::warn("cannot link with host {}: {}", other.host, error.what());
    on_reply(base::describe_failure(error));
  }
}

// Reads what other processes append to a file.
class LogFollower {
 public:
  LogFollower() = default;
  explicit LogFollower(fs::path file) : file_(std::move(file)) {  // from its current end on
    std::error_code absent;
    const std::uintmax_t size = fs::file_size(file_, absent);
    taken_ = absent ? 0 : size;
  }

  // What was appended since the last call, 8 KiB at most; empty: nothing, or it cannot be read.
  std::string take() {
    std::ifstream in(file_, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(taken_));
    std::string text(kMaxLogBytes, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    taken_ += text.size();
    return text;
  }

 private:
  // Below the limit of a text in a message, even if every byte is replaced by U+FFFD (3 bytes).
  static constexpr std::size_t kMaxLogBytes = 8192;

  fs::path file_;
  std::uint64_t taken_ = 0;
};

constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";

// Call it before the first thread: setenv is not thread-safe. Stages inherit the environment.
void set_environment(const AgentJob& job) {
  for (const auto& [name, value] : job.environment) {
    // An installed build finds its own libraries by it.
    const char* const own = name == kLibraryPath ? std::getenv(kLibraryPath) : nullptr;
    ::setenv(name.c_str(), own == nullptr ? value.c_str() : (own + (":" + value)).c_str(), 1);
  }
  if (job.devices.empty()) return;
  ::setenv("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(job.devices, ",")).c_str(), 1);
}

// For checkpoints in memory. Where there is none the stages say so, if the run has any.
std::unique_ptr<store::MemoryDirectory> memory_directory(const AgentJob& job) {
  try {
    return std::make_unique<store::MemoryDirectory>(plan::memory_directory(job.run, job.host));
  } catch (const store::StoreError& error) {
    spdlog::warn("no checkpoints in memory on this host: {}", error.what());
    return nullptr;
  }
}

// Waits until the launcher has acknowledged: it does not answer agents of an earlier start.
void send_hello(net::Link& link, const AgentJob& job, const HostFacts& facts,
                const std::atomic<int>& stops) {
  std::string why = "timeout";
  const auto deadline = Clock::now() + kGreetingTimeout;
  try {
    link.send(with_number(0, format(AgentHello{facts})));
    while (Clock::now() < deadline) {
      if (link.flush(std::min(deadline, Clock::now() + kStopCheck))) return;
      if (stops.load() == 0) continue;
      throw base::UserError(base::ExitCode::interrupted, "interrupted before it joined the run");
    }
  } catch (const net::LinkError& error) {
    why = error.what();
  }
  throw base::UserError(base::ExitCode::peer_lost,
                        "the launcher of run {} at {} does not answer this host's agent ({}): the "
                        "run has ended or was started again, or another agent has connected with "
                        "the same job, or this host has no route to the launcher",
                        job.run_name, job.endpoint, why);
}

// Flushes the last messages, unless the launcher has disconnected already.
void flush_last_messages(net::Link& link) {
  try {
    link.flush(Clock::now() + kFinalFlushTimeout);
  } catch (const net::LinkError& error) {
    spdlog::info("{}", error.what());
  }
}

// What the agent sends to the launcher. Any thread: a link has one sender at a time.
class Reports {
 public:
  explicit Reports(net::Link& link) : link_(link) {}

  void send(const AgentMessage& message) { send(0, format(message)); }
  template <class Reply>
  void reply(std::uint64_t number, const std::variant<Failure, Reply>& reply) {
    send(number, ReplyFrame<Reply>::format(reply));
  }

 private:
  void send(std::uint64_t number, const net::Frame& message) {
    net::Frame frame = with_number(number, message);
    const MutexLock lock(mutex_);
    try {
      link_.send(std::move(frame));
    } catch (const net::LinkError&) {
      // The thread that receives gets the same error, and ends the agent.
    }
  }

  Mutex mutex_;
  net::Link& link_;
};

// Does on this host what the launcher requests, and reports ends and logs of its processes. One
// thread, and one for requests about paths, so that a measurement does not delay processes.
class HostAgent {
 public:
  // `stops` counts requests to leave: the first is passed on to the launcher, which saves before it
  // ends this agent; the second ends it at once.
  HostAgent(fs::path run_directory, net::Link& link, Reports& reports, PathService& paths,
            AgentTransfer& transfer, const std::atomic<int>& stops)
      : directory_(std::move(run_directory)),
        link_(link),
        reports_(reports),
        paths_(paths),
        transfer_(transfer),
        stops_(stops) {
    fs::create_directories(directory_ / base::kLogsFolder);
  }

  // If nothing was ever started here, removes the run's directory, unless it holds more than this
  // agent's own log. Files of the run stay.
  void remove_unused_directory() const {
    if (used_) return;
    const fs::path logs = directory_ / base::kLogsFolder;
    const fs::path locks = directory_ / base::kLocksFolder;
    try {
      for (const fs::path& entry : store::entries_of(logs)) {
        if (entry.filename() != kAgentLog) return;
      }
      for (const fs::path& entry : store::entries_of(directory_)) {
        if (entry != logs && entry != locks) return;
      }
    } catch (const store::StoreError&) {
      return;  // what is in it is not known
    }
    std::error_code not_empty;
    fs::remove_all(locks, not_empty);
    fs::remove(logs / kAgentLog, not_empty);
    fs::remove(logs, not_empty);
    fs::remove(directory_, not_empty);
  }

  // Handles at most one message. Returns the exit code of this agent when it is to end.
  std::optional<base::ExitCode> serve() {
    if (!say_goodbye()) return base::ExitCode::interrupted;
    if (const auto frame = link_.receive_until(Clock::now() + kServeTick)) {
      const auto [number, message] = take_number(*frame);
      std::visit([&, number = number](const auto& content) { handle(content, number); },
                 parse_launcher_message(message));
      if (dismissed_) return base::ExitCode::done;
    }
    report_ends();
    if (Clock::now() - logged_ >= kLogEvery) send_logs();
    if (dismissed_) return base::ExitCode::done;
    return std::nullopt;
  }

 private:
  struct Running {
    std::unique_ptr<base::Process> process;
    LogFollower log;
    bool ended_by_launcher = false;
  };

  // False: this agent ends now.
  bool say_goodbye() {
    const int stops = stops_.load();
    if (stops <= stops_handled_) return true;
    stops_handled_ = stops;
    const bool now = stops >= 2 || !used_;  // nothing was started here: there is nothing to save
    reports_.send(Goodbye{now});
    spdlog::warn(now ? "interrupted: leaves the run at once"
                     : "interrupted: leaves the run when it has saved; once more: at once");
    return !now;
  }

  template <class Request>
  requires std::is_constructible_v<PathRequest, Request>
  void handle(const Request& request, std::uint64_t number) {
    path_worker_.add([this, request, number] { reports_.reply(number, paths_.perform(request)); });
  }

  template <class Request>
  requires std::is_constructible_v<transfer::FileRequest, Request>
  void handle(const Request& request, std::uint64_t number) {
    // Without this object: the reply may come later than its end.
    transfer_.perform(request, [&reports = reports_, number](const transfer::FileReply& reply) {
      using Reply = typename Request::Reply;
      const auto* failed = std::get_if<Failure>(&reply);
      reports.reply(number, failed != nullptr ? ReplyTo<Request>(*failed) : std::get<Reply>(reply));
    });
  }

  void handle(const StartProcess& start, std::uint64_t number) {
    used_ = true;
    processes_.erase(start.process);  // a former one of this name is killed first
    const fs::path log = directory_ / base::log_file(start.process.text());
    try {
      base::Launch launch;
      launch.process = start.process;
      launch.argv = {stage_program_here()};
      launch.input = start.job;
      launch.log = log;
      LogFollower follower(log);  // earlier generations have sent what is there
      processes_[start.process] = {backend_.start(launch), std::move(follower)};
      const ProcessStarted started{processes_[start.process].process->pid()};
      reports_.reply(number, ReplyTo<StartProcess>(started));
    } catch (const base::UserError& error) {
      reports_.reply(number, ReplyTo<StartProcess>(Failure{error.code(), error.what()}));
    }
  }

  void handle(const End& end, std::uint64_t /*number*/) {
    dismissed_ = !end.process;
    if (dismissed_) return;
    const auto found = processes_.find(*end.process);
    if (found == processes_.end()) return;
    found->second.ended_by_launcher = true;
    found->second.process->kill();
  }

  void report_ends() {
    for (auto at = processes_.begin(); at != processes_.end();) {
      const std::optional<base::ExitStatus> status = at->second.process->exit_status();
      if (!status) {
        ++at;
        continue;
      }
      pump(at->first, at->second.log);
      ProcessReport ended{at->first};
      if (status->code) ended.code = *status->code;
      if (status->signal) ended.signal = *status->signal;
      spdlog::info("{} {}", at->first.describe(), status->sentence());
      reports_.send(ended);
      const bool unwanted = at->second.ended_by_launcher;
      at = processes_.erase(at);
      // The run goes on without this host. Processes that end by themselves have saved, and the
      // launcher fetches that before it ends this agent.
      dismissed_ = stops_handled_ > 0 && unwanted && processes_.empty();
    }
  }

  void send_logs() {
    logged_ = Clock::now();
    for (auto& [name, running] : processes_) pump(name, running.log);
  }

  void pump(net::ProcessName name, LogFollower& log) {
    for (std::string text = log.take(); !text.empty(); text = log.take()) {
      reports_.send(ProcessReport{name, std::move(text)});
    }
  }

  const fs::path directory_;
  net::Link& link_;
  Reports& reports_;
  PathService& paths_;
  AgentTransfer& transfer_;
  transfer::Workers path_worker_{1};
  base::LocalBackend backend_;
  std::map<net::ProcessName, Running> processes_;  // destroying a Process kills it
  Clock::time_point logged_;
  const std::atomic<int>& stops_;
  int stops_handled_ = 0;
  bool used_ = false;
  bool dismissed_ = false;
};

}  // namespace

std::string stage_program_here() {
  const std::string path = fs::read_symlink("/proc/self/exe").string();
  return fs::exists(path) ? path : "/proc/self/exe";
}

base::ExitCode run_agent(const AgentJob& job) {
  try {
    const base::StopSignals signals;
    set_environment(job);
    const fs::path directory = agent_directory(job.directory);
    fs::create_directories(directory);
    spdlog::info("agent of {} (host {} of run {}, generation {}), build {}", job.host_name,
                 job.host, job.run.hex(), job.generation, base::build_id());
    const fs::path run_directory = host_run_directory(directory, job.run_name, job.run);
    for (const std::string& ended :
         base::end_former_processes(run_directory, job.host, job.generation)) {
      spdlog::warn("ended {}", ended);
    }
    const base::GenerationLock lock(run_directory, {job.name(), job.host, job.generation});
    const auto memory = memory_directory(job);
    net::Node node(agent_node(job));
    const std::unique_ptr<net::Link> link = node.connect(
        job.endpoint,
        base::service_link(base::kAgentService, job.name(), net::ProcessName::coordinator(),
                           job.launcher_key, std::chrono::seconds(job.hold)));
    const HostFacts facts = facts_of_this_host(directory, job.endpoint);
    send_hello(*link, job, facts, signals.count());
    spdlog::info("joined the run {} at {}", job.run_name, job.endpoint);
    Reports reports(*link);
    PathService paths(agent_node(job), job.ports, [](const MeasureCompute& request) {
      return measure_in_subprocess(stage_program_here(), request);
    });
    AgentTransfer transfer(node, job, directory, job.address.empty() ? facts.address : job.address);
    HostAgent agent(run_directory, *link, reports, paths, transfer, signals.count());
    std::optional<base::ExitCode> code;
    while (!code) code = agent.serve();
    if (code == base::ExitCode::done) spdlog::info("the launcher has ended this agent");
    flush_last_messages(*link);
    agent.remove_unused_directory();
    return *code;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    spdlog::error("{}", failure.text);
    return failure.code;
  }
}

}  // namespace strait::hosts
