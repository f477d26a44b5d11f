#include "launcher/hosts/ssh_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

// Exit code of ssh itself; other codes come from the remote command.
constexpr int kSshOwnFailure = 255;
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

}  // namespace strait::hosts
