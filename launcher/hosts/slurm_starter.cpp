#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Time for all sruns to exit after their tasks, the agents, have ended.
constexpr auto kSrunExitTimeout = std::chrono::seconds(10);

// Each node gets its own srun, so that a node sees only its own token.
class SlurmStarter : public AgentStarter {
 public:
  // `exit_by`: shared by the starters of a run; the first that is destroyed sets it.
  SlurmStarter(NodeAddress node, std::string address, fs::path run,
               std::shared_ptr<std::optional<Clock::time_point>> exit_by)
      : node_(std::move(node)),
        address_(std::move(address)),
        run_(std::move(run)),
        exit_by_(std::move(exit_by)) {}
  ~SlurmStarter() override {
    if (!srun_) return;
    if (!*exit_by_) *exit_by_ = Clock::now() + kSrunExitTimeout;
    srun_->wait_until(**exit_by_);
  }
  SlurmStarter(const SlurmStarter&) = delete;
  SlurmStarter& operator=(const SlurmStarter&) = delete;

  std::string launcher_address(Clock::time_point /*deadline*/) override {
    std::string address = address_.empty() ? own_address_towards(node_.address) : address_;
    if (!address.empty()) return address;
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("this machine has no route to node {} (its address in Slurm is {}); set "
                    "hosts.address",
                    node_.node, node_.address));
  }

  void start_agent(const AgentJob& job, Clock::time_point deadline) override {
    AgentJob with_directory = job;
    with_directory.directory = (run_ / "nodes").string();
    const fs::path program = base::own_program().parent_path() / "strait-stage";
    // An agent may use all of its node's share of the job and is bound to no core.
    srun_.emplace(
        std::vector<std::string>{"srun", "--nodes=1", "--ntasks=1", "--nodelist=" + node_.node,
                                 "--mpi=none", "--cpu-bind=none", "--open-mode=append",
                                 "--output=" + log().string(), program.string(), "--join", "-"});
    if (!srun_->write(to_text(with_directory) + "\n", deadline)) {
      throw base::UserError(base::ExitCode::stalled,
                            fmt::format("srun was started for node {}, but does not read the "
                                        "agent's token: {}",
                                        node_.node, base::printable(srun_->errors())));
    }
    srun_->close_input();
  }

  std::string failure() override {
    const auto ended = srun_ ? srun_->wait_until(Clock::now()) : std::nullopt;
    if (!ended) return {};
    std::string words = srun_->errors();
    words.erase(words.find_last_not_of(" \n") + 1);
    return fmt::format("srun, which runs the agent of node {}, {}{}{}; its log is {}", node_.node,
                       ended->sentence(), words.empty() ? "" : ": ",
                       base::printable(words.substr(words.find_last_of('\n') + 1)), log().string());
  }

 private:
  fs::path log() const { return run_ / base::kLogsFolder / "agents.log"; }

  const NodeAddress node_;
  const std::string address_;  // hosts.address
  const fs::path run_;
  const std::shared_ptr<std::optional<Clock::time_point>> exit_by_;
  std::optional<base::PipedProcess> srun_;
};

}  // namespace

std::vector<std::unique_ptr<AgentStarter>> slurm_starters(const plan::Plan& plan,
                                                          const fs::path& run) {
  const std::optional<Allocation> allocation = own_allocation();
  if (!allocation) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "hosts.backend is \"slurm\", but this is not a Slurm job; submit one with: strait "
        "run RECIPE");
  }
  const std::vector<NodeAddress> nodes = nodes_of(*allocation);
  if (nodes.size() < plan.hosts.size()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("the plan needs {} nodes, but Slurm job {} has {}: {}", plan.hosts.size(),
                    allocation->job, nodes.size(), allocation->nodes));
  }
  const auto exit_by = std::make_shared<std::optional<Clock::time_point>>();
  std::vector<std::unique_ptr<AgentStarter>> starters;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    starters.push_back(std::make_unique<SlurmStarter>(nodes[i], plan.recipe.hosts.address,
                                                      fs::absolute(run), exit_by));
  }
  return starters;
}

}  // namespace strait::hosts
