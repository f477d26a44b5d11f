#pragma once

#include <thread>
#include <type_traits>

#include "framework/net/link_error.h"
#include "framework/net/node.h"
#include "launcher/hosts/host_agents.h"
#include "launcher/hosts/path_service.h"
#include "tests/memory_links.h"

namespace strait::hosts {

// The agents of some hosts in one process, which reply to requests about paths. There are real
// sockets between the hosts.
class ServedHosts {
 public:
  // The message of a host's reply.
  using Reply = std::function<net::Frame(std::size_t host, const LauncherMessage& request)>;

  explicit ServedHosts(std::size_t count, Reply reply = {}) : reply_(std::move(reply)) {
    std::vector<HostAgents::Agent> launched;
    for (std::size_t i = 0; i < count; ++i) {
      net::NodeOptions node = agent_node(static_cast<std::uint32_t>(i));
      auto [near, far] = memory_links(net::ProcessName::coordinator(), node.name, "agent");
      launched.push_back({"h" + std::to_string(i), std::move(near), node.keys.public_key});
      links_.push_back(std::move(far));
      paths_.push_back(
          std::make_unique<PathService>(std::move(node), std::pair(0, 0),
                                        [](const MeasureCompute&) { return ComputeMeasured{}; }));
      threads_.emplace_back([this, i] { serve(i); });
    }
    agents = std::make_unique<HostAgents>(
        std::move(launched), [](auto, const auto&) {}, [] {});
    agents->tolerate_outages();
  }
  ~ServedHosts() {
    agents.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  ServedHosts(const ServedHosts&) = delete;
  ServedHosts& operator=(const ServedHosts&) = delete;

  static net::NodeOptions agent_node(std::uint32_t host) {
    net::NodeOptions node;
    node.name = net::ProcessName::host_agent(host);
    node.keys = net::CurveKeyPair::generate();
    return node;
  }
  void end(std::size_t host) {
    links_[host]->abort(net::LinkError(net::LinkError::Kind::aborted, "the agent has ended"));
  }

  std::unique_ptr<HostAgents> agents;

 private:
  void serve(std::size_t host) {
    try {
      while (true) {
        const net::Frame frame = links_[host]->receive();
        const auto [number, message] = take_number(frame);
        const LauncherMessage request = parse_launcher_message(message);
        if (std::holds_alternative<End>(request)) return;
        links_[host]->send(
            with_number(number, reply_ ? reply_(host, request) : served(host, request)));
      }
    } catch (const net::LinkError&) {  // it has ended
    }
  }
  net::Frame served(std::size_t host, const LauncherMessage& request) {
    return std::visit(
        [&]<class Request>(const Request& one) {
          if constexpr (std::is_constructible_v<PathRequest, Request>) {
            return ReplyFrame<typename Request::Reply>::format(paths_[host]->perform(one));
          } else {
            return ReplyFrame<ListensAt>::format(
                Failure{base::ExitCode::internal, "not about paths"});
          }
        },
        request);
  }

  const Reply reply_;
  std::vector<std::unique_ptr<net::Link>> links_;
  std::vector<std::unique_ptr<PathService>> paths_;
  std::vector<std::thread> threads_;
};

}  // namespace strait::hosts
