#include <fcntl.h>
#include <fmt/format.h>
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
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

namespace fs = std::filesystem;

// Created with mode 0600 and O_EXCL, so that no other user can read it or has prepared it, and
// renamed when it is complete.
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
    fs::remove(file_.parent_path(), gone_already);  // with the last of them
  }

  std::string launcher_address(std::chrono::steady_clock::time_point /*deadline*/) override {
    if (!address_.empty()) return address_;
    const std::vector<std::string> own = own_addresses();
    if (own.size() == 1) return own.front();
    throw base::UserError(
        base::ExitCode::bad_input,
        fmt::format("this machine has {} addresses; set hosts.address to the one at which "
                    "joining hosts can reach it",
                    own.size()));
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

fs::path token_file(const fs::path& run, std::size_t host) {
  return run / "join" / fmt::format("{}.token", host);
}

std::vector<std::string> join_instructions(const plan::Plan& plan, const fs::path& run) {
  std::vector<std::string> lines = {fmt::format(
      "waiting {} s for hosts to join; on each, with its own token: strait-stage --join "
      "TOKEN",
      plan.recipe.hosts.join_wait)};
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    lines.push_back(fmt::format("  {}: {}", plan.hosts[host].name, token_file(run, host).string()));
  }
  return lines;
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
