#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/net/link.h"
#include "launcher/hosts/reach_message.h"

namespace strait::hosts {

// The launcher's ends of the service "reach", by host. One thread.
class ReachClient {
 public:
  struct Host {
    std::string name;
    std::unique_ptr<net::Link> link;  // null: no agent; it must not be asked
    std::string key;                  // the agent's public key, for other hosts
    std::size_t owed = 0;             // answers that have not come yet
  };

  // `poll` is called every 200 ms while answers are waited for, and throws to give up.
  explicit ReachClient(std::vector<Host> hosts, std::function<void()> poll = {})
      : hosts_(std::move(hosts)), poll_(std::move(poll)) {}

  std::size_t size() const { return hosts_.size(); }
  const std::string& name(std::size_t host) const { return hosts_.at(host).name; }
  const std::string& key(std::size_t host) const { return hosts_.at(host).key; }

  // A new agent was started on that host.
  void replace(std::size_t host, std::unique_ptr<net::Link> link, const std::string& key) {
    hosts_.at(host) = {hosts_.at(host).name, std::move(link), key};
  }

  // Sends a command that has no answer. UserError (peer_lost): the link is lost.
  void give(std::size_t host, const ReachCommand& command);

  // Sends commands to several hosts and waits for all answers, which may be CommandFailed.
  // UserError (peer_lost, stalled) names a host that does not answer. Late answers to a call that
  // failed are skipped.
  std::map<std::size_t, ReachAnswer> ask(const std::map<std::size_t, ReachCommand>& commands,
                                         std::chrono::seconds limit);

 private:
  ReachAnswer take(std::size_t host, std::chrono::steady_clock::time_point deadline);

  std::vector<Host> hosts_;
  std::function<void()> poll_;
};

// The answer of the expected type, or null and why there is none.
template <class Answer>
const Answer* answer_in(const ReachAnswer& answer, std::string& problem) {
  if (const auto* failed = std::get_if<CommandFailed>(&answer)) problem = failed->text;
  const auto* expected = std::get_if<Answer>(&answer);
  if (expected == nullptr && problem.empty())
    problem = "its agent sent the answer to another command";
  return expected;
}

}  // namespace strait::hosts
