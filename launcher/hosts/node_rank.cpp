#include "launcher/hosts/node_rank.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

// Variables of one engine; null: it has none for that.
struct EngineVariables {
  const char* name;
  const char* rank;
  const char* nodes;
  const char* first;
  const char* local_rank;
  const char* local_size;
  const char* one_per_node;  // how to start one process on each node
};

// What is started by another one comes first: mpirun inside of a Slurm job has the variables of
// both, and only its own say which process this is.
constexpr std::array kEngines = {
    EngineVariables{"torchrun", "RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK",
                    "LOCAL_WORLD_SIZE", "torchrun --nproc-per-node=1"},
    EngineVariables{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr,
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                    "mpirun --map-by ppr:1:node"},
    EngineVariables{"PMI", "PMI_RANK", "PMI_SIZE", nullptr, "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                    "mpiexec -ppn 1"},
    EngineVariables{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_NODELIST", "SLURM_LOCALID",
                    nullptr, "srun --ntasks-per-node=1"},
    EngineVariables{"Kubernetes", "JOB_COMPLETION_INDEX", nullptr, nullptr, nullptr, nullptr, ""},
    EngineVariables{"SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_IPS",
                    nullptr, nullptr, ""},
    EngineVariables{"dstack", "DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_MASTER_NODE_IP",
                    nullptr, nullptr, ""},
    EngineVariables{"torchrun's PET_ variables", "PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR",
                    nullptr, nullptr, ""}};

[[noreturn]] void refuse(const std::string& sentence) {
  throw base::UserError(base::ExitCode::bad_input, sentence);
}

std::optional<std::uint32_t> number_in(const Variable& variable, const char* name) {
  const std::string text = name == nullptr ? "" : variable(name);
  if (text.empty()) return std::nullopt;
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) {
    refuse(
        fmt::format("{} is \"{}\", but must be a number from 0 on", name, base::printable(text)));
  }
  return number;
}

// Reads a list of nodes as engines write it: "n[08-11,15],m2", "10.0.0.1 10.0.0.2", one a line.
std::string first_node(std::string_view list) {
  const std::string_view one = list.substr(0, list.find_first_of(", \n"));
  const std::size_t open = one.find('[');
  if (open == one.npos) return std::string(one);
  const std::string_view numbers = one.substr(open + 1);
  return fmt::format("{}{}", one.substr(0, open), numbers.substr(0, numbers.find_first_of("-]")));
}

const EngineVariables* engine_of(const Variable& variable) {
  for (const EngineVariables& engine : kEngines) {
    if (!variable(engine.rank).empty()) return &engine;
  }
  return nullptr;
}

void check_alone_on_node(const EngineVariables& engine, const Variable& variable) {
  const auto local = number_in(variable, engine.local_rank).value_or(0);
  const auto size = number_in(variable, engine.local_size).value_or(1);
  if (local == 0 && size <= 1) return;
  refuse(
      fmt::format("{} has started several processes on this node ({}); one is enough, because "
                  "strait starts the stages of a node itself: {}",
                  engine.name,
                  local > 0 ? fmt::format("{} is {}", engine.local_rank, local)
                            : fmt::format("{} is {}", engine.local_size, size),
                  engine.one_per_node));
}

// What neither the flags nor the environment say.
[[noreturn]] void refuse_incomplete(const std::vector<std::string>& missing,
                                    const EngineVariables* engine) {
  std::string why;
  if (engine == nullptr) {
    std::vector<std::string_view> names;
    names.reserve(std::size(kEngines));
    for (const EngineVariables& known : kEngines) names.emplace_back(known.name);
    why = fmt::format("no variables of {} are set here", fmt::join(names, ", "));
  } else {
    why = fmt::format("{} is set, so {} has started this process, but it does not say that",
                      engine->rank, engine->name);
  }
  refuse(fmt::format("--rendezvous lacks {}: {}; give the same on every node",
                     fmt::join(missing, " and "), why));
}

}  // namespace

std::string own_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

NodeRank node_rank(const RankFlags& flags, const Variable& variable) {
  // With all flags the environment does not count, so that several nodes can be on one machine.
  const bool complete = flags.rank && flags.nodes && !flags.first.empty();
  const EngineVariables* const engine = complete ? nullptr : engine_of(variable);
  if (engine != nullptr && !flags.rank) check_alone_on_node(*engine, variable);
  const auto of_engine = [&](const char* EngineVariables::*field) {
    return engine == nullptr ? std::nullopt : number_in(variable, engine->*field);
  };
  const auto rank = flags.rank ? flags.rank : of_engine(&EngineVariables::rank);
  const auto nodes = flags.nodes ? flags.nodes : of_engine(&EngineVariables::nodes);
  std::string first = flags.first;
  if (first.empty() && engine != nullptr && engine->first != nullptr)
    first = first_node(variable(engine->first));
  // Scripts often export it for engines that have nothing of the kind.
  if (first.empty() && !complete) first = variable("MASTER_ADDR");
  std::vector<std::string> missing;
  if (!rank) missing.emplace_back("--rank, the number of this node from 0 on");
  if (!nodes) missing.emplace_back("--nodes, the number of all nodes");
  if (first.empty()) missing.emplace_back("--first, a name or address of the node with rank 0");
  if (!missing.empty()) refuse_incomplete(missing, engine);
  const std::string source = engine == nullptr ? "the flags" : engine->name;
  if (*rank >= *nodes) {
    refuse(fmt::format("this node has rank {} of {} nodes, according to {}; ranks are 0 to {}",
                       *rank, *nodes, source, *nodes == 0 ? 0 : *nodes - 1));
  }
  return {*rank, *nodes, first, source};
}

std::string address_of_first(const NodeRank& node, const std::vector<std::string>& found,
                             const std::vector<std::string>& own) {
  for (const std::string& address : found) {
    if (std::ranges::find(own, address) != own.end()) return address;
  }
  const bool loopback = std::ranges::any_of(found, is_loopback);
  if (std::ranges::find(found, node.first) != found.end() && loopback) return node.first;
  // The name of a machine is often one of loopback there, or not known before the node is ready.
  if ((found.empty() || loopback) && own.size() == 1) return own.front();
  if (found.empty() || loopback) {
    refuse(
        fmt::format("{} has no address here that other nodes can reach; give one of this "
                    "machine's as --first: {}",
                    base::printable(node.first), fmt::join(own, ", ")));
  }
  refuse(
      fmt::format("this node has rank 0, according to {}, but the first node is {} ({}), which "
                  "is another machine; one node has rank 0, and --first names it",
                  node.source, base::printable(node.first), fmt::join(found, ", ")));
}

}  // namespace strait::hosts
