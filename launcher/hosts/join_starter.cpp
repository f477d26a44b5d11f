#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "framework/file_descriptor.h"
#include "launcher/base/errors.h"
#include "launcher/base/read_all.h"
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
  fs::remove(unfinished, none);
  const FileDescriptor out(
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out.open()) throw refuse_token("make");
  if (!base::write_all(out.number(), std::as_bytes(std::span(text)))) throw refuse_token("write");
  if (::rename(unfinished.c_str(), file.c_str()) != 0) throw refuse_token("rename");
}

class JoinStarter : public AgentStarter {
 public:
  JoinStarter(std::string address, fs::path file)
      : address_(std::move(address)), file_(std::move(file)) {}
  ~JoinStarter() override {
    std::error_code gone_already;
    fs::remove(file_, gone_already);
    fs::remove(file_.parent_path(), gone_already);  // when the last token is removed
  }

  std::string launcher_address(std::chrono::steady_clock::time_point /*deadline*/) override {
    return address_for_joining(address_, own_addresses());
  }

  void start_agent(const AgentJob& job,
                   std::chrono::steady_clock::time_point /*deadline*/) override {
    write_token(file_, to_text(job) + "\n");
  }

 private:
  const std::string address_;
  const fs::path file_;
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
    throw base::UserError(base::ExitCode::bad_input,
                          fmt::format("set hosts.address to the address of this machine at which "
                                      "joining hosts can reach it; {}",
                                      choice));
  }
  if (is_own(configured, own)) return configured;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format(
          "hosts.address is {}, which is not an address of this machine, and the run listens "
          "there for its hosts; {}",
          base::printable(configured), choice));
}

void check_launcher_address(const recipe::Recipe::Hosts& hosts) {
  const bool joined = hosts.backend == recipe::BackendKind::join;
  const bool given = hosts.backend == recipe::BackendKind::ssh && !hosts.address.empty();
  if (joined || given) address_for_joining(hosts.address, own_addresses());
}

fs::path token_file(const fs::path& run, std::size_t host) {
  return run / "join" / fmt::format("{}.token", host);
}

std::vector<std::string> join_instructions(const plan::Plan& plan, const fs::path& run) {
  std::vector<std::string> lines = {
      fmt::format("waiting {} s for hosts to join; on each, with its own token: strait join TOKEN",
                  plan.recipe.hosts.join_wait)};
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    lines.push_back(fmt::format("  {}: {}", plan.hosts[host].name, token_file(run, host).string()));
  }
  return lines;
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
      "{}: start the run again, and on each host, with its own new token: strait join TOKEN (or "
      "wait for longer: hosts.join_wait). A host that tried and got no answer says so itself: then "
      "{}",
      who, kFirewall);
}

std::vector<std::unique_ptr<AgentStarter>> join_starters(const plan::Plan& plan,
                                                         const fs::path& run) {
  std::vector<std::unique_ptr<AgentStarter>> starters;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    starters.push_back(
        std::make_unique<JoinStarter>(plan.recipe.hosts.address, token_file(run, host)));
  }
  return starters;
}

}  // namespace strait::hosts
