#include "launcher/agent/keeper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "framework/net/node.h"
#include "launcher/base/build_id.h"
#include "launcher/base/failure.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/host_message.h"
#include "launcher/agent/log_pump.h"
#include "launcher/hosts/service_link.h"
#include "launcher/process/local_backend.h"
#include "launcher/reach/measure_aside.h"
#include "launcher/reach/reach_end.h"
#include "launcher/agent/keeper_ship.h"
#include "launcher/base/user_error.h"

namespace strait::agent {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kServeTick = std::chrono::milliseconds(50);
constexpr auto kLogEvery = std::chrono::milliseconds(500);
constexpr auto kLeaveTaking = std::chrono::seconds(5);
constexpr auto kAnswerLimit = std::chrono::seconds(30);

net::NodeOptions keeper_node(const hosts::KeeperJob& job) {
  net::NodeOptions options;
  options.name = job.name();
  options.run = job.run;
  options.generation = job.generation;
  options.keys = job.keys;
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  return options;
}

// Before the first thread: what is started inherits it.
void take_environment(const hosts::KeeperJob& job) {
  for (const auto& [name, value] : job.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (job.devices.empty()) return;
  ::setenv("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(job.devices, ",")).c_str(), 1);
}

// Until the launcher has heard us: a keeper of an earlier start gets no answer.
void present(net::Link& link, const hosts::KeeperJob& job, const hosts::HostFacts& facts) {
  std::string why = "silence";
  try {
    link.send(format(hosts::KeeperHello{facts}));
    if (link.flush(Clock::now() + kAnswerLimit)) return;
  } catch (const net::LinkError& error) {
    why = error.what();
  }
  throw base::UserError(
      base::ExitCode::peer_lost,
      fmt::format("the launcher of run {} at {} does not answer to this host's token ({}): the run "
                  "has ended or was started again, and the token has expired, or no way leads "
                  "there from here",
                  job.run_name, job.endpoints.at(hosts::kKeeperService), why));
}

// What was said last gets its time, unless the launcher wants no more of it and has hung up.
void take_leave(net::Link& link) {
  try {
    link.flush(Clock::now() + kLeaveTaking);
  } catch (const net::LinkError& error) {
    spdlog::info("{}", error.what());
  }
}

// The processes of a host, by the words of the launcher.
class Keeper {
 public:
  Keeper(const hosts::KeeperJob& job, const fs::path& directory, net::Link& link)
      : directory_(host_run_directory(directory, job.run_name, job.run)), link_(link) {
    fs::create_directories(directory_ / "logs");
  }

  // Nothing was ever started here: then the run's directory goes, unless there is more in it than
  // this keeper's own log. What a run shipped or wrote stays.
  void tidy() const {
    if (used_) return;
    std::error_code not_empty;
    const fs::path logs = directory_ / "logs";
    for (const fs::directory_entry& entry : fs::directory_iterator(logs, not_empty)) {
      if (entry.path().filename() != kKeeperLog) return;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_, not_empty)) {
      if (entry.path() != logs) return;
    }
    fs::remove(logs / kKeeperLog, not_empty);
    fs::remove(logs, not_empty);
    fs::remove(directory_, not_empty);
  }

  // True: stay.
  bool serve() {
    if (const auto frame = link_.receive_until(Clock::now() + kServeTick)) {
      const hosts::HostMessage message = hosts::parse_host_message(*frame);
      if (std::holds_alternative<hosts::Leave>(message)) return false;
      if (const auto* start = std::get_if<hosts::StartProcess>(&message)) begin(*start);
      if (const auto* end = std::get_if<hosts::EndProcess>(&message)) finish(*end);
    }
    look_for_ends();
    if (Clock::now() - logged_ >= kLogEvery) pump_logs();
    return true;
  }

 private:
  struct Kept {
    std::unique_ptr<process::Process> process;
    LogPump log;
  };

  void begin(const hosts::StartProcess& start) {
    used_ = true;
    const fs::path log = directory_ / "logs" / (start.process.text() + ".log");
    try {
      process::Launch launch;
      launch.process = start.process;
      launch.argv = {stage_program_here()};
      launch.input = start.job;
      launch.log = log;
      LogPump pump(log);  // what earlier generations wrote has been told
      kept_[start.process] = {backend_.start(launch), std::move(pump)};
      link_.send(format(hosts::ProcessStarted{start.process, kept_[start.process].process->pid()}));
    } catch (const base::UserError& error) {
      link_.send(format(hosts::ProcessRefused{start.process, error.code(), error.what()}));
    }
  }

  void finish(const hosts::EndProcess& end) {
    const auto found = kept_.find(end.process);
    if (found == kept_.end()) return;
    if (end.kill) {
      found->second.process->kill();
    } else {
      found->second.process->ask_to_end();
    }
  }

  void look_for_ends() {
    for (auto at = kept_.begin(); at != kept_.end();) {
      const std::optional<process::ExitStatus> status = at->second.process->ended();
      if (!status) {
        ++at;
        continue;
      }
      pump(at->first, at->second.log);
      hosts::ProcessEnded ended{at->first, {}, {}};
      if (status->code) ended.code = *status->code;
      if (status->signal) ended.signal = *status->signal;
      spdlog::info("{} {}", at->first.describe(), status->sentence());
      link_.send(format(ended));
      at = kept_.erase(at);
    }
  }

  void pump_logs() {
    logged_ = Clock::now();
    for (auto& [name, kept] : kept_) pump(name, kept.log);
  }

  void pump(net::ProcessName name, LogPump& log) {
    for (std::string text = log.take(); !text.empty(); text = log.take()) {
      link_.send(format(hosts::LogText{name, std::move(text)}));
    }
  }

  const fs::path directory_;
  net::Link& link_;
  process::LocalBackend backend_;
  std::map<net::ProcessName, Kept> kept_;  // its end kills who is left
  Clock::time_point logged_;
  bool used_ = false;
};

}  // namespace

std::string stage_program_here() {
  const std::string path = fs::read_symlink("/proc/self/exe").string();
  return fs::exists(path) ? path : "/proc/self/exe";
}

fs::path keeper_directory(const std::string& written) {
  const char* home = std::getenv("HOME");
  if (written == "~" || written.starts_with("~/")) {
    if (home == nullptr) {
      throw base::UserError(base::ExitCode::bad_input,
                      fmt::format("the directory {} needs $HOME, which is not set", written));
    }
    return fs::path(home) / fs::path(written.substr(written.size() > 1 ? 2 : 1));
  }
  return fs::absolute(written);
}

fs::path host_run_directory(const fs::path& directory, const std::string& run_name,
                            const net::RunId& run) {
  return directory / "runs" / fmt::format("{}-{}", run_name, run.hex().substr(0, 8));
}

base::ExitCode run_keeper(const hosts::KeeperJob& job) {
  try {
    take_environment(job);
    const fs::path directory = keeper_directory(job.directory);
    fs::create_directories(directory);
    spdlog::info("keeper of {} (host {} of run {}, generation {}), build {}", job.host_name,
                 job.host, job.run.hex(), job.generation, base::build_id());
    net::Node node(keeper_node(job));
    const std::string& endpoint = job.endpoints.at(hosts::kKeeperService);
    const std::unique_ptr<net::Link> link = node.connect(
        endpoint, hosts::service_link(hosts::kKeeperService, job.name(), net::ProcessName::coordinator(),
                               job.launcher_key, std::chrono::seconds(job.hold)));
    const hosts::HostFacts facts = hosts::facts_of_this_host(directory, endpoint);
    present(*link, job, facts);
    const reach::ReachEnd reach(
        node.connect(job.endpoints.at(hosts::kReachService),
                     hosts::service_link(hosts::kReachService, job.name(), net::ProcessName::coordinator(),
                                  job.launcher_key, std::chrono::seconds(job.hold))),
        job.host, job.ports,
        [](const reach::MeasureCompute& order) { return reach::measure_aside(stage_program_here(), order); });
    const KeeperShip ship(node, job, directory, job.address.empty() ? facts.address : job.address);
    Keeper keeper(job, directory, *link);
    while (keeper.serve()) {
    }
    spdlog::info("the launcher lets this host go");
    take_leave(*link);
    keeper.tidy();
    return base::ExitCode::done;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    spdlog::error("{}", failure.text);
    return failure.code;
  }
}

}  // namespace strait::agent
