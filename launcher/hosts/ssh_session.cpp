#include "launcher/hosts/ssh_session.h"

#include "launcher/base/own_program.h"
#include "launcher/base/read_all.h"
#include "launcher/base/text.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {
namespace {

// Exit code of ssh itself; other codes come from the remote command.
constexpr int kSshOwnFailure = 255;
// Codes of a POSIX shell: there is no such command, or it cannot be executed.
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

constexpr const char* kInstall = "install this build there with: strait install --hosts RECIPE";

struct SshError {
  std::string_view pattern;  // in the output of ssh
  base::ExitCode code;
  std::string_view meaning;  // format string with {host}, {line} of the output, {hand}: ssh by hand
};

// The first match is the cause.
constexpr SshError kSshErrors[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", base::ExitCode::authentication,
     "{host} shows another host key than the one this machine knows: either it was reinstalled, "
     "or the connection is intercepted; if you know why, remove its old key ({key}) and log in "
     "once: {hand}"},
    {"Host key verification failed", base::ExitCode::authentication,
     "the host key of {host} is not known to this machine; log in once, compare its fingerprint "
     "and say yes: {hand}"},
    {"Could not resolve hostname", base::ExitCode::bad_input,
     "there is no host called {host} ({line}); correct hosts.list, or give it a HostName in your "
     "ssh configuration"},
    {"Permission denied", base::ExitCode::authentication,
     "{host} refuses the login ({line}); strait cannot answer prompts, so this has to work without "
     "a password: {hand}"},
    {"Too many authentication failures", base::ExitCode::authentication,
     "{host} refuses the login ({line}); name the right key in your ssh configuration "
     "(IdentityFile, IdentitiesOnly)"},
    {"Connection refused", base::ExitCode::peer_lost,
     "no ssh server answers on {host} ({line}); start it there, or name its Port in your ssh "
     "configuration"},
    {"Connection timed out", base::ExitCode::peer_lost,
     "{host} does not answer ({line}): it is off, or a firewall drops the port of ssh; see whether "
     "this works: {hand}"},
    {"Operation timed out", base::ExitCode::peer_lost,
     "{host} does not answer ({line}): it is off, or a firewall drops the port of ssh; see whether "
     "this works: {hand}"},
    {"Timeout, server", base::ExitCode::peer_lost,
     "{host} stopped responding ({line}): it has lost power or its network; see whether this "
     "works: {hand}"},
    {"No route to host", base::ExitCode::peer_lost,
     "{host} cannot be reached from here ({line}); see whether it is on and in this network"},
    {"Network is unreachable", base::ExitCode::peer_lost,
     "{host} cannot be reached from here ({line}); see whether this machine is in that network"},
    {"kex_exchange_identification", base::ExitCode::peer_lost,
     "{host} disconnects before the login ({line}); its ssh server has too many connections, or "
     "does not admit this machine"},
};

// Output of the remote shell and loader.
constexpr SshError kRemoteErrors[] = {
    {"version `GLIBC_", base::ExitCode::mismatch,
     "{host} runs an older system than this build was made for ({line}); build strait on the "
     "oldest of your hosts and start from there"},
    {"error while loading shared libraries", base::ExitCode::mismatch,
     "strait on {host} lacks a library ({line}); {install}"},
    {"Exec format error", base::ExitCode::mismatch,
     "strait on {host} is of another processor architecture ({line}); all hosts of a run need the "
     "same"},
    // Another build, which has other options.
    {"strait-stage: Option", base::ExitCode::mismatch,
     "strait on {host} is another build ({line}); {install}"},
    {"cannot execute", base::ExitCode::mismatch,
     "strait on {host} cannot be executed there ({line}); {install}"},
};

std::string line_with(const std::string& text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == text.npos) return "";
  const std::size_t before = text.rfind('\n', at);
  const std::size_t first = before == text.npos ? 0 : before + 1;
  return base::printable(std::string_view(text).substr(first, text.find('\n', at) - first));
}

std::string last_ssh_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\r\n \t");
  if (end == text.npos) return "";
  const std::size_t before = text.rfind('\n', end);
  const std::size_t first = before == text.npos ? 0 : before + 1;
  return base::printable(std::string_view(text).substr(first, end + 1 - first));
}

// ssh names the old key as "Offending ED25519 key in FILE:3".
std::string old_key(const std::string& errors) {
  const std::string line = line_with(errors, "Offending ");
  const std::size_t at = line.find(" in ");
  return at == line.npos ? "in its known_hosts" : line.substr(at + 4);
}

std::string fill_in(std::string_view meaning, const std::string& host, const std::string& config,
                    const std::string& line, const std::string& errors) {
  return fmt::format(fmt::runtime(meaning), fmt::arg("host", host), fmt::arg("line", line),
                     fmt::arg("hand", ssh_by_hand(host, config)), fmt::arg("key", old_key(errors)),
                     fmt::arg("install", kInstall));
}

using Clock = std::chrono::steady_clock;
using ReadResult = base::PipedProcess::ReadResult;

// For ssh to exit after its stdout was closed.
constexpr auto kSshExitTimeout = std::chrono::seconds(3);
// For a login, counted from the last progress of any session: a login shows no progress, and a
// server that is busy with many logins is not dead. Key exchange is within ssh's own limit.
constexpr auto kLoginLimit = std::chrono::seconds(8);
constexpr auto kCheckInterval = std::chrono::milliseconds(200);

}  // namespace

std::vector<std::string> ssh_argv(const std::string& host, const std::string& config,
                                  const std::string& command, std::chrono::seconds silence) {
  std::vector<std::string> argv = {"ssh", "-T"};
  for (const char* option :
       {"BatchMode=yes", "StrictHostKeyChecking=yes", "LogLevel=ERROR", "ClearAllForwardings=yes",
        "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=yes", "RemoteCommand=none"}) {
    argv.insert(argv.end(), {"-o", option});
  }
  // ssh probes after every third of `silence` and gives up when the third probe is due.
  argv.insert(argv.end(),
              {"-o", fmt::format("ConnectTimeout={}", silence.count()), "-o",
               fmt::format("ServerAliveInterval={}", silence.count() / 3), "-o",
               "ServerAliveCountMax=2", "-o", fmt::format("LocalCommand=echo {}", kLoggedIn)});
  if (!config.empty()) argv.insert(argv.end(), {"-F", config});
  argv.insert(argv.end(), {"--", host, command});
  return argv;
}

std::string ssh_by_hand(const std::string& host, const std::string& config) {
  return config.empty()
             ? "ssh " + base::shell_word(host)
             : fmt::format("ssh -F {} {}", base::shell_word(config), base::shell_word(host));
}

base::UserError ssh_failure(const std::string& host, const std::string& config,
                            const base::ExitStatus& status, const std::string& errors) {
  const auto first_match = [&](const auto& complaints) -> const SshError* {
    const auto* const fit = std::ranges::find_if(
        complaints, [&](const SshError& one) { return errors.find(one.pattern) != errors.npos; });
    return fit == std::end(complaints) ? nullptr : fit;
  };
  const bool own = status.code == kSshOwnFailure;
  if (const SshError* fit = own ? first_match(kSshErrors) : first_match(kRemoteErrors)) {
    const std::string line = line_with(errors, fit->pattern);
    return {fit->code, fill_in(fit->meaning, host, config, line, errors)};
  }
  const std::string last = last_ssh_line(errors);
  if (status.code == kNotFound || status.code == kNotExecutable) {
    return {base::ExitCode::mismatch,
            fmt::format("{} has no strait in ~/.strait/bin ({}); {}", host, last, kInstall)};
  }
  return {
      own ? base::ExitCode::peer_lost : base::ExitCode::internal,
      fmt::format("{} to {} {}{}{}; see what this says: {}", own ? "ssh" : "strait over ssh", host,
                  status.sentence(), last.empty() ? "" : ": ", last, ssh_by_hand(host, config))};
}

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
      base::ExitCode::stalled, "{} was called {} s ago and {}; see how long this takes: {} true",
      target_.host, waited.count(), waited_for, ssh_by_hand(target_.host, target_.config));
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
  throw base::UserError(base::ExitCode::mismatch,
                        "{} has strait {}, this is {}; install this build there with: strait "
                        "install --hosts RECIPE",
                        target_.host, base::printable(theirs), base::build_id());
}

std::string SshSession::launcher_address(Time deadline) {
  check_build(deadline);
  const std::vector<std::string> own = own_addresses();
  if (target_.address.empty()) return address_seen_by(target_.host, greeting_->caller, own);
  // Stated by the user, so what the host sees does not matter: it may see the address of a NAT.
  if (is_own(target_.address, own)) return target_.address;
  throw base::UserError(
      base::ExitCode::bad_input,
      "hosts.address is {}, which is not an address of this machine, and the run listens "
      "there for its hosts; name one that {} can reach, of: {}",
      base::printable(target_.address), target_.host, fmt::join(own, ", "));
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
      throw base::UserError(static_cast<base::ExitCode>(answer->code), "{}: {}", target_.host,
                            base::printable(answer->error));
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
      "{} sees this machine {}, which is none of its own addresses: there is NAT "
      "between them; set under [hosts] an own address of this machine that {} can "
      "reach, such as that of a VPN: address = \"...\"",
      host, address.empty() ? "nowhere" : "at " + base::printable(address), host);
}

}  // namespace strait::hosts
