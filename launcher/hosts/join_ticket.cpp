#include "launcher/hosts/join_ticket.h"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "framework/fields/json_fields.h"
#include "framework/file_descriptor.h"
#include "launcher/base/launcher_links.h"
#include "launcher/base/messages.h"
#include "launcher/base/read_all.h"
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

namespace {

constexpr const char* kSecret = "STRAIT_JOIN_SECRET";
constexpr const char* kSecretFile = "STRAIT_JOIN_SECRET_FILE";
// The file may be a pipe of the engine that starts the nodes: neither its size nor its end is sure.
constexpr std::size_t kMostSecretBytes = 4096;
constexpr std::chrono::seconds kSecretLimit{10};
// A job holds the variables of a host.
constexpr base::MessageLimits kLimits{.frame_bytes = std::size_t{64} << 20,
                                      .text_bytes = std::size_t{48} << 20};
// Either end notices the loss of the other in this time. A host that was only cut off joins again.
constexpr std::chrono::seconds kJoinHold{30};
// A wrong secret shows only in that nothing is ever agreed on.
constexpr std::chrono::seconds kAttemptLimit{10};

using Secret = std::array<std::uint8_t, 32>;

// nullopt: not 64 hexadecimal digits.
std::optional<Secret> parse_secret(std::string_view digits) {
  Secret secret{};
  if (digits.size() != 2 * secret.size()) return std::nullopt;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const char* const begin = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, secret.at(i), 16);
    if (error != std::errc() || end != begin + 2) return std::nullopt;
  }
  return secret;
}

std::string text_in(const std::string& name) {
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    throw base::UserError(base::ExitCode::bad_input, "cannot read {}, which {} names: {}", name,
                          kSecretFile, std::strerror(errno));
  }
  return base::read_all(file.number(), name, kMostSecretBytes, kSecretLimit);
}

}  // namespace

void describe(auto& f, fields::Is<JoinTicket> auto& m) {
  f("build", m.build), f("run_name", m.run_name), f("host", m.host), f("hosts", m.hosts);
  f("endpoint", m.endpoint), f("launcher_key", m.launcher_key);
  f("public_key", m.keys.public_key), f("secret_key", m.keys.secret_key), f("wait", m.wait);
}
void describe(auto& f, fields::Is<NodeHello> auto& m) {
  f("host_name", m.host_name), f("start", m.start);
}
void describe(auto& f, fields::Is<StartAgent> auto& m) { f("job", m.job); }
void describe(auto& f, fields::Is<RunEnded> auto& m) { f("code", m.code), f("text", m.text); }

constexpr base::TypesOf<JoinMessage> kTypes = {"node_hello", "start_agent", "run_ended"};

net::Frame format(const JoinMessage& message) {
  return base::format_message(message, kTypes, kLimits);
}
JoinMessage parse_join_message(std::span<const std::byte> frame) {
  return base::parse_message<JoinMessage>(frame, kTypes, kLimits);
}

std::string to_text(const JoinTicket& ticket) { return fields::to_object(ticket).dump(); }

JoinTicket parse_join_ticket(const std::string& text) {
  try {
    return fields::from_text<JoinTicket>(text, "run token");
  } catch (const base::MessageError& error) {
    throw base::UserError(base::ExitCode::mismatch, "this is not a run token of this build: {}",
                          error.what());
  }
}

net::LinkOptions join_link(std::uint32_t host, std::uint32_t hosts, net::ProcessName peer,
                           const std::string& peer_key) {
  net::LinkOptions options = base::service_link(
      base::kJoinService, net::ProcessName::host_agent(host), peer, peer_key, kJoinHold);
  options.terms.emplace_back("nodes", std::to_string(hosts));
  if (peer == net::ProcessName::coordinator()) options.connect_limit = kAttemptLimit;
  return options;
}

std::string take_rendezvous_secret() {
  const std::string name = own_variable(kSecretFile);
  std::string text = own_variable(kSecret);
  const std::string source = text.empty() ? name : kSecret;
  if (text.empty() && !name.empty()) text = text_in(name);
  ::unsetenv(kSecret);
  ::unsetenv(kSecretFile);
  text.erase(text.find_last_not_of(" \r\n\t") + 1);
  if (parse_secret(text)) return text;
  const std::string found =
      source.empty()
          ? fmt::format("{} is not set on this node", kSecret)
          : fmt::format("{} has {}", source, base::counted(std::ssize(text), "character"));
  throw base::UserError(base::ExitCode::bad_input,
                        "--rendezvous needs a secret of 64 hexadecimal digits, the same on all "
                        "nodes, but {}; set {} to what `openssl rand -hex 32` prints, or {} to the "
                        "name of a file that holds it",
                        found, kSecret, kSecretFile);
}

net::CurveKeyPair launcher_keys(const std::string& secret) {
  return net::CurveKeyPair::of_secret(parse_secret(secret).value());
}

net::CurveKeyPair node_keys(const std::string& secret, std::uint32_t rank) {
  Secret own = parse_secret(secret).value();
  const std::uint32_t mixed = rank + 1;  // 0 is the launcher
  // In the middle: CURVE ignores the lowest and the highest bits of a secret.
  for (std::size_t i = 0; i < sizeof mixed; ++i) {
    own.at(8 + i) = static_cast<std::uint8_t>(own.at(8 + i) ^ (mixed >> (8 * i)));
  }
  return net::CurveKeyPair::of_secret(own);
}

}  // namespace strait::hosts
