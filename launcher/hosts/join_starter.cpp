#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "framework/file_descriptor.h"
#include "framework/net/endpoint.h"
#include "launcher/base/backend.h"
#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/base/read_all.h"
#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;

// Created with mode 0600 and O_EXCL, so that no other user can read or prepare the file. It is
// renamed when it is complete, so that nobody copies a part of it.
void write_token(const fs::path& file, const std::string& text) {
  const fs::path unfinished = file.string() + ".tmp";
  const auto refuse_token = [&](const char* doing) -> base::UserError {
    return {errno == ENOSPC ? base::ExitCode::storage_full : base::ExitCode::storage_io,
            fmt::format("cannot {} {}: {}", doing, unfinished.string(), std::strerror(errno))};
  };
  std::error_code none;
  fs::create_directories(file.parent_path(), none);
  // The rest of a start that was killed: O_EXCL would refuse it for ever.
  fs::remove(unfinished, none);
  const FileDescriptor out(
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out.open()) throw refuse_token("make");
  if (!base::write_all(out.number(), std::as_bytes(std::span(text)))) throw refuse_token("write");
  if (::rename(unfinished.c_str(), file.c_str()) != 0) throw refuse_token("rename");
}

std::vector<recipe::RecipeHost> listed_hosts(const recipe::Recipe::Hosts& settings) {
  std::vector<recipe::RecipeHost> all = settings.list;
  all.insert(all.end(), settings.spare.begin(), settings.spare.end());
  return all;
}

// A rendezvous whose hosts have a token each, which a person carries there.
class TokenRendezvous : public Rendezvous {
 public:
  TokenRendezvous(const recipe::Recipe& recipe, const fs::path& run)
      : TokenRendezvous(recipe.hosts, run, net::CurveKeyPair::generate(), tickets_for(recipe)) {}
  ~TokenRendezvous() override {
    std::error_code gone_already;
    // A token is worthless once the run has ended, but it holds a secret key.
    fs::remove_all(folder_, gone_already);
  }

 private:
  TokenRendezvous(const recipe::Recipe::Hosts& settings, const fs::path& run,
                  const net::CurveKeyPair& keys, std::vector<JoinTicket> tickets)
      : Rendezvous(address_for_joining(settings.address, own_addresses()), settings.ports, keys,
                   hosts_of(settings, tickets)),
        folder_(token_file(run, 0).parent_path()) {
    for (JoinTicket& ticket : tickets) {
      ticket.endpoint = endpoint();
      ticket.launcher_key = keys.public_key;
      write_token(token_file(run, ticket.host), to_text(ticket) + "\n");
    }
  }

  static std::vector<JoinTicket> tickets_for(const recipe::Recipe& recipe) {
    std::vector<JoinTicket> tickets(listed_hosts(recipe.hosts).size());
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      tickets[i].build = base::build_id();
      tickets[i].run_name = recipe.name;
      tickets[i].host = static_cast<std::uint32_t>(i);
      tickets[i].hosts = static_cast<std::uint32_t>(tickets.size());
      tickets[i].keys = net::CurveKeyPair::generate();
      tickets[i].wait = recipe.hosts.join_wait;
    }
    return tickets;
  }
  static std::vector<Host> hosts_of(const recipe::Recipe::Hosts& settings,
                                    const std::vector<JoinTicket>& tickets) {
    const std::vector<recipe::RecipeHost> all = listed_hosts(settings);
    std::vector<Host> hosts;
    hosts.reserve(tickets.size());
    for (const JoinTicket& ticket : tickets)
      hosts.push_back({all.at(ticket.host).name, ticket.keys.public_key});
    return hosts;
  }

  const fs::path folder_;
};

// Starts the agent of a host that joins by itself.
class JoinStarter : public AgentStarter {
 public:
  JoinStarter(Rendezvous& rendezvous, std::string host)
      : rendezvous_(rendezvous), host_(std::move(host)) {}

  std::string launcher_address(std::chrono::steady_clock::time_point /*deadline*/) override {
    return rendezvous_.address();
  }
  void start_agent(const AgentJob& job,
                   std::chrono::steady_clock::time_point /*deadline*/) override {
    rendezvous_.start_agent(host_, to_text(job));
  }
  std::string failure() override { return rendezvous_.refusal(host_); }

 private:
  Rendezvous& rendezvous_;
  const std::string host_;
};

// Starts this machine's own agent, if it is the first host of a rendezvous.
class OwnStarter : public AgentStarter {
 public:
  OwnStarter(std::string address, fs::path log)
      : address_(std::move(address)), log_(std::move(log)) {}

  std::string launcher_address(std::chrono::steady_clock::time_point /*deadline*/) override {
    return address_;
  }
  void start_agent(const AgentJob& job,
                   std::chrono::steady_clock::time_point /*deadline*/) override {
    fs::create_directories(log_.parent_path());
    base::Launch launch;
    launch.process = job.name();
    launch.argv = {base::own_program().parent_path() / "strait-stage", "--run-agent"};
    launch.input = to_text(job);
    launch.log = log_;
    agent_ = base::LocalBackend().start(launch);
  }
  std::string failure() override {
    const auto ended = agent_ ? agent_->exit_status() : std::nullopt;
    if (!ended || ended->code == number(base::ExitCode::done)) return {};
    return fmt::format("the agent of this machine {}; its log is {}", ended->sentence(),
                       log_.string());
  }

 private:
  const std::string address_;
  const fs::path log_;
  std::unique_ptr<base::Process> agent_;
};

}  // namespace

std::string address_for_joining(const std::string& configured,
                                const std::vector<std::string>& own) {
  std::vector<std::string> found;
  for (const std::string& address : own) {
    const std::string interface = interface_of(address);
    found.push_back(interface.empty() ? address : fmt::format("{} ({})", address, interface));
  }
  const std::string choice = found.empty() ? std::string("it has none but loopback, 127.0.0.1")
                                           : fmt::format("it has {}", fmt::join(found, ", "));
  if (configured.empty() && own.size() == 1) return own.front();
  if (configured.empty()) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "set hosts.address to the address of this machine at which joining hosts can reach it; {}",
        choice);
  }
  if (is_own(configured, own)) return configured;
  throw base::UserError(base::ExitCode::bad_input,
                        "hosts.address is {}, which is not an address of this machine, and the run "
                        "listens there for its hosts; {}",
                        base::printable(configured), choice);
}

void check_launcher_address(const recipe::Recipe::Hosts& hosts) {
  const bool joined = hosts.backend == recipe::BackendKind::join;
  const bool given = hosts.backend == recipe::BackendKind::ssh && !hosts.address.empty();
  if (joined || given) address_for_joining(hosts.address, own_addresses());
}

fs::path token_file(const fs::path& run, std::size_t host) {
  return run / "join" / fmt::format("{}.token", host);
}

std::vector<std::string> join_instructions(const recipe::Recipe& recipe, const fs::path& run) {
  if (recipe.hosts.backend != recipe::BackendKind::join) return {};
  std::vector<std::string> lines = {
      fmt::format("waiting {} s for hosts to join; on each, with its own token: strait join TOKEN",
                  recipe.hosts.join_wait)};
  for (std::size_t host = 0; const recipe::RecipeHost& one : listed_hosts(recipe.hosts)) {
    lines.push_back(fmt::format("  {}: {}", one.name, token_file(run, host++).string()));
  }
  return lines;
}

std::unique_ptr<Rendezvous> open_rendezvous(const recipe::Recipe& recipe, const fs::path& run) {
  if (recipe.hosts.backend != recipe::BackendKind::join) return nullptr;
  return std::make_unique<TokenRendezvous>(recipe, run);
}

std::unique_ptr<Rendezvous> open_rendezvous(const recipe::Recipe::Hosts& settings,
                                            const std::string& secret) {
  std::vector<Rendezvous::Host> hosts = {{settings.list.at(0).name, ""}};
  for (std::uint32_t rank = 1; rank < settings.list.size(); ++rank) {
    hosts.push_back({settings.list[rank].name, node_keys(secret, rank).public_key});
  }
  // One port, because the nodes know nothing else.
  return std::make_unique<Rendezvous>(settings.address,
                                      std::pair(settings.ports.first, settings.ports.first),
                                      launcher_keys(secret), std::move(hosts));
}

JoinTicket ticket_of_node(const recipe::Recipe& recipe, const NodeRank& node,
                          const std::string& secret) {
  JoinTicket ticket;
  ticket.build = base::build_id();
  ticket.run_name = recipe.name;
  ticket.host = node.rank;
  ticket.hosts = node.nodes;
  ticket.endpoint =
      net::Endpoint{node.first, static_cast<std::uint16_t>(recipe.hosts.ports.first)}.text();
  ticket.launcher_key = launcher_keys(secret).public_key;
  ticket.keys = node_keys(secret, node.rank);
  ticket.wait = recipe.hosts.join_wait;
  return ticket;
}

std::string late_hosts_text(const recipe::Recipe::Hosts& hosts,
                            const std::vector<std::string>& missing) {
  const std::string names = fmt::format("{}", fmt::join(missing, ", "));
  constexpr const char* kFirewall =
      "open the ports of hosts.ports on this machine, or give hosts.address, an address of it that "
      "they can reach";
  if (hosts.backend != recipe::BackendKind::join) {
    return fmt::format(
        "{} did not reach the launcher in time; a firewall may stand between them: {}", names,
        kFirewall);
  }
  const std::string who = missing.size() == hosts.list.size()
                              ? fmt::format("no host has joined within {} s", hosts.join_wait)
                              : fmt::format("{} {} not joined within {} s", names,
                                            missing.size() == 1 ? "has" : "have", hosts.join_wait);
  return fmt::format(
      "{}: start the run again, and with it each host (by its engine, or with its own new token: "
      "strait join TOKEN; or wait for longer: hosts.join_wait). A host that tried and got no "
      "answer says so itself: then {}",
      who, kFirewall);
}

std::unique_ptr<AgentStarter> join_starter(Rendezvous& rendezvous, const std::string& host,
                                           const fs::path& run) {
  if (!rendezvous.is_here(host)) return std::make_unique<JoinStarter>(rendezvous, host);
  return std::make_unique<OwnStarter>(rendezvous.address(), run / base::kLogsFolder / kAgentLog);
}

}  // namespace strait::hosts
