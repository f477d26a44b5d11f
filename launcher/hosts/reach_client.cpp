#include "launcher/hosts/reach_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/net/link_error.h"
#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kReplyPoll = std::chrono::milliseconds(200);

[[noreturn]] void throw_lost_host(const std::string& host, const net::LinkError& error) {
  throw base::UserError(
      base::ExitCode::peer_lost,
      fmt::format("host {} was lost while paths were tried: {}", host, error.what()));
}

}  // namespace

void ReachClient::give(std::size_t host, const ReachCommand& command) {
  try {
    hosts_.at(host).link->send(format(command));
  } catch (const net::LinkError& error) {
    throw_lost_host(hosts_[host].name, error);
  }
}

std::map<std::size_t, ReachAnswer> ReachClient::ask(
    const std::map<std::size_t, ReachCommand>& commands, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (const auto& [host, command] : commands) {
    give(host, command);
    ++hosts_[host].owed;
  }
  std::map<std::size_t, ReachAnswer> answers;
  for (const auto& [host, command] : commands) answers.emplace(host, take(host, deadline));
  return answers;
}

ReachAnswer ReachClient::take(std::size_t host, std::chrono::steady_clock::time_point deadline) {
  try {
    for (auto now = Clock::now(); now < deadline; now = Clock::now()) {
      if (poll_) poll_();
      const auto until = std::min(deadline, now + kReplyPoll);
      const auto frame = hosts_.at(host).link->receive_until(until);
      if (frame && --hosts_[host].owed == 0) return parse_reach_answer(*frame);
    }
  } catch (const net::LinkError& error) {
    throw_lost_host(hosts_[host].name, error);
  }
  throw base::UserError(base::ExitCode::stalled,
                        fmt::format("host {} timed out while its paths were tried; it may be "
                                    "overloaded: see the log of its agent",
                                    hosts_[host].name));
}

}  // namespace strait::hosts
