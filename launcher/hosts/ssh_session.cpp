#include "launcher/hosts/ssh_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/read_all.h"
#include "launcher/base/text.h"
#include "launcher/hosts/host_facts.h"
#include "launcher/hosts/ssh_options.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;
using ReadResult = base::PipedProcess::ReadResult;

// For ssh to exit after its stdout was closed.
constexpr auto kSshExitTimeout = std::chrono::seconds(3);
// For a login, counted from the last progress of any session: a login shows no progress, and a
// server that is busy with many logins is not dead. Key exchange is within ssh's own limit.
constexpr auto kLoginLimit = std::chrono::seconds(8);
constexpr auto kCheckInterval = std::chrono::milliseconds(200);

}  // namespace

SshSession::SshSession(SshTarget target)
    : target_(std::move(target)),
      begun_(Clock::now()),
      ssh_(ssh_argv(target_.host, target_.config, kAgentCommand, kCallSilence)) {}

void SshSession::fail(ReadResult heard, const std::string& waited_for) {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun_);
  if (heard == ReadResult::end) {
    if (const auto status = ssh_.wait_until(Clock::now() + kSshExitTimeout)) {
      // A login script that refuses (an expired account, a maintenance note) often writes to
      // stdout.
      const std::string& words = ssh_.errors().empty() ? other_output_ : ssh_.errors();
      throw ssh_failure(target_.host, target_.config, *status, words);
    }
  }
  throw base::UserError(
      base::ExitCode::stalled,
      fmt::format("{} was called {} s ago and {}; see how long this takes: {} true", target_.host,
                  waited.count(), waited_for, ssh_by_hand(target_.host, target_.config)));
}

// After the login ssh itself detects a dead host. A single session delays no others.
SshSession::Time SshSession::login_deadline(Time deadline) const {
  if (logged_in_ || !target_.progress) return deadline;
  return std::min(deadline, Time(target_.progress->load()) + kLoginLimit);
}

ReadResult SshSession::read_line(std::string& line, Time deadline) {
  if (!target_.check) return ssh_.read_line(line, deadline);
  for (;;) {
    target_.check();
    const Time until = std::min(deadline, Clock::now() + kCheckInterval);
    const ReadResult heard = ssh_.read_line(line, until);
    if (heard != ReadResult::timeout || until == deadline) return heard;
  }
}

const AgentGreeting& SshSession::greeting(Time deadline) {
  std::string line;
  while (!greeting_) {
    const Time until = login_deadline(deadline);
    const ReadResult heard = read_line(line, until);
    // Another session has made progress meanwhile, which moves the deadline of all.
    if (heard == ReadResult::timeout && until < login_deadline(deadline)) continue;
    if (heard != ReadResult::line)
      fail(heard, "has sent no greeting: its login, its disk or a login script hangs");
    if (target_.progress) target_.progress->store(Clock::now().time_since_epoch());
    greeting_ = greeting_from(line);
    if (line == kLoggedIn)
      logged_in_ = true;
    else if (!greeting_)
      other_output_ = base::printable(line);
  }
  return *greeting_;
}

void SshSession::check_build(Time deadline) {
  const std::string& theirs = greeting(deadline).build;
  if (theirs == base::build_id()) return;
  throw base::UserError(
      base::ExitCode::mismatch,
      fmt::format("{} has strait {}, this is {}; install this build there with: strait "
                  "install --hosts RECIPE",
                  target_.host, base::printable(theirs), base::build_id()));
}

std::string SshSession::launcher_address(Time deadline) {
  check_build(deadline);
  const std::vector<std::string> own = own_addresses();
  if (target_.address.empty()) return address_seen_by(target_.host, greeting_->caller, own);
  // Stated by the user, so what the host sees does not matter: it may see the address of a NAT.
  if (is_own(target_.address, own)) return target_.address;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format(
          "hosts.address is {}, which is not an address of this machine, and the run listens "
          "there for its hosts; name one that {} can reach, of: {}",
          base::printable(target_.address), target_.host, fmt::join(own, ", ")));
}

std::string SshSession::send_request(const std::string& request,
                                     bool (*wanted)(const std::string& line), Time deadline) {
  greeting(deadline);
  if (!ssh_.write(base::length_prefixed(request), deadline)) {
    fail(Clock::now() < deadline ? ReadResult::end : ReadResult::timeout, "does not read its job");
  }
  for (std::string line;;) {
    const ReadResult heard = read_line(line, deadline);
    if (heard != ReadResult::line) fail(heard, "has not acknowledged its job");
    if (const auto answer = answer_from(line); answer && !answer->error.empty()) {
      throw base::UserError(static_cast<base::ExitCode>(answer->code),
                            fmt::format("{}: {}", target_.host, base::printable(answer->error)));
    }
    if (wanted(line)) return line;
  }
}

void SshSession::start_agent(const AgentJob& job, Time deadline) {
  check_build(deadline);
  send_request(
      to_text(job), [](const std::string& line) { return answer_from(line).has_value(); },
      deadline);
}

std::string SshSession::failure() {
  const auto status = ssh_.wait_until(Clock::now());
  if (disconnected_ || !status) return {};
  return ssh_failure(target_.host, target_.config, *status, ssh_.errors()).what();
}

// The remote program exits at end of file on its stdin, and ssh with it.
void SshSession::disconnect() {
  disconnected_ = true;
  ssh_.close_input();
}

std::vector<std::string> call_hosts(const recipe::Recipe::Hosts& settings,
                                    const std::vector<recipe::RecipeHost>& hosts,
                                    std::chrono::steady_clock::time_point deadline) {
  const auto progress = std::make_shared<LoginProgress>(Clock::now().time_since_epoch());
  const auto errors = for_each_host(hosts.size(), [&](std::size_t i) {
    SshSession({hosts[i].name, settings.ssh_config, settings.address, progress})
        .launcher_address(deadline);
  });
  std::vector<std::string> reasons(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
    } catch (const std::exception& error) {
      reasons[i] = base::describe_failure(error).text;
    }
  }
  return reasons;
}

std::string address_seen_by(const std::string& host, const std::string& seen,
                            const std::vector<std::string>& own) {
  constexpr std::string_view kMapped = "::ffff:";  // prefix of IPv4 addresses of IPv6 sockets
  std::string address = seen.starts_with(kMapped) ? seen.substr(kMapped.size()) : seen;
  if (is_own(address, own)) return address;
  throw base::UserError(
      base::ExitCode::bad_input,
      fmt::format("{} sees this machine {}, which is none of its own addresses: there is NAT "
                  "between them; set under [hosts] an own address of this machine that {} can "
                  "reach, such as that of a VPN: address = \"...\"",
                  host, address.empty() ? "nowhere" : "at " + base::printable(address), host));
}

}  // namespace strait::hosts
