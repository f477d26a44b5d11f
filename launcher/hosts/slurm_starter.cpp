#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "framework/mutex.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"
#include "launcher/control/run_file_names.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/process/piped_process.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// For srun to exit after its tasks, the agents, have ended.
constexpr auto kSrunExitTimeout = std::chrono::seconds(10);

// The srun of all agents, shared by the starters of all nodes.
class SlurmStep {
 public:
  SlurmStep(std::size_t nodes, fs::path run) : run_(std::move(run)), jobs_(nodes) {}
  ~SlurmStep() {
    if (srun_) srun_->wait_until(Clock::now() + kSrunExitTimeout);
  }
  SlurmStep(const SlurmStep&) = delete;
  SlurmStep& operator=(const SlurmStep&) = delete;

  void add(AgentJob job, Clock::time_point deadline) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const std::size_t host = job.host;
    job.directory = (run_ / "nodes").string();
    jobs_.at(host) = std::move(job);
    if (++added_ == jobs_.size()) start(deadline);
  }

  // Why the agents have ended; empty: they run.
  std::string failure() STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!srun_) return {};
    const std::optional<process::ExitStatus> ended = srun_->wait_until(Clock::now());
    if (!ended) return {};
    std::string words = srun_->errors();
    words.erase(words.find_last_not_of(" \n") + 1);
    return fmt::format("srun, which runs the nodes' agents, {}{}{}; their log is {}",
                       ended->sentence(), words.empty() ? "" : ": ",
                       base::printable(words.substr(words.find_last_of('\n') + 1)), log().string());
  }

 private:
  fs::path log() const { return run_ / control::kLogsFolder / "agents.log"; }

  void start(Clock::time_point deadline) STRAIT_REQUIRES(mutex_) {
    const std::string count = fmt::format("{}", jobs_.size());
    const fs::path program = base::own_program().parent_path() / "strait-stage";
    // An agent may use all of its node's share of the job and is bound to no core.
    srun_.emplace(std::vector<std::string>{
        "srun", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1", "--mpi=none",
        "--cpu-bind=none", "--kill-on-bad-exit=0", "--wait=0", "--open-mode=append",
        "--output=" + log().string(), program.string(), "--agent-slurm"});
    if (!srun_->write(pack_jobs(jobs_), deadline)) {
      throw base::UserError(base::ExitCode::stalled,
                            fmt::format("srun was started, but does not read the agents' jobs: {}",
                                        base::printable(srun_->errors())));
    }
    srun_->close_input();
  }

  const fs::path run_;
  Mutex mutex_;
  std::vector<AgentJob> jobs_ STRAIT_GUARDED_BY(mutex_);
  std::size_t added_ STRAIT_GUARDED_BY(mutex_) = 0;
  std::optional<process::PipedProcess> srun_ STRAIT_GUARDED_BY(mutex_);
};

class SlurmStarter : public AgentStarter {
 public:
  SlurmStarter(std::string address, std::shared_ptr<SlurmStep> step)
      : address_(std::move(address)), step_(std::move(step)) {}
  std::string launcher_address(Clock::time_point /*deadline*/) override { return address_; }
  void start_agent(const AgentJob& job, Clock::time_point deadline) override {
    step_->add(job, deadline);
  }
  std::string failure() override { return step_->failure(); }

 private:
  const std::string address_;
  const std::shared_ptr<SlurmStep> step_;
};

std::vector<std::string> resolved(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  std::vector<std::string> found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      found.emplace_back(text.data());
    }
  }
  ::freeaddrinfo(list);
  return found;
}

// Where the other nodes reach this one: at the address that Slurm uses. On the node itself that
// name may resolve to 127.0.1.1; then the first address of its interfaces is used.
std::string address_of_this_node(const NodeAddress& node) {
  const std::vector<std::string> own = own_addresses();
  const std::vector<std::string> named = resolved(node.address);
  for (const std::string& address : named) {
    if (address == node.address || std::ranges::find(own, address) != own.end()) return address;
  }
  if (!own.empty()) return own.front();
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("node {} has no address that other nodes can reach (Slurm calls it "
                  "{}); set hosts.address",
                  node.node, node.address));
}

}  // namespace

std::vector<std::unique_ptr<AgentStarter>> slurm_starters(const plan::Plan& plan,
                                                          const fs::path& run) {
  const std::optional<Allocation> allocation = own_allocation();
  if (!allocation) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "hosts.backend is \"slurm\", but this is no Slurm job; submit one with: strait "
        "run RECIPE");
  }
  const std::vector<NodeAddress> nodes = nodes_of(*allocation);
  if (nodes.size() < plan.hosts.size()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the plan needs {} nodes, but Slurm job {} has {}: {}", plan.hosts.size(),
                    allocation->job, nodes.size(), allocation->nodes));
  }
  const std::string& configured = plan.recipe.hosts.address;
  const std::string address = configured.empty() ? address_of_this_node(nodes.front()) : configured;
  const auto step = std::make_shared<SlurmStep>(plan.hosts.size(), fs::absolute(run));
  std::vector<std::unique_ptr<AgentStarter>> starters;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    starters.push_back(std::make_unique<SlurmStarter>(address, step));
  }
  return starters;
}

}  // namespace strait::hosts
