#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/memory_link.h"
#include "framework/net/node.h"
#include "launcher/base/launcher_links.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/reach_client.h"
#include "launcher/hosts/reach_service.h"

namespace strait::hosts {

// The service of some hosts in one process, with real sockets between them.
struct ServedHosts {
  using MeasureFunction = std::function<ComputeMeasured(const MeasureCompute&)>;
  static ComputeMeasured nothing_measured(const MeasureCompute& /*command*/) { return {}; }

  explicit ServedHosts(std::size_t count, const MeasureFunction& measure = nothing_measured) {
    std::vector<ReachClient::Host> hosts;
    for (std::size_t i = 0; i < count; ++i) {
      auto [near, far] = links(i);
      net::NodeOptions node = agent_node(static_cast<std::uint32_t>(i));
      hosts.push_back({"h" + std::to_string(i), std::move(near), node.keys.public_key});
      ends.push_back(std::make_unique<ReachService>(std::move(far), std::move(node),
                                                    std::pair(0, 0), measure));
    }
    reach = std::make_unique<ReachClient>(std::move(hosts));
  }

  static net::NodeOptions agent_node(std::uint32_t host) {
    net::NodeOptions node;
    node.name = net::ProcessName::host_agent(host);
    node.keys = net::CurveKeyPair::generate();
    return node;
  }
  // The launcher's end and the host's.
  static std::pair<std::unique_ptr<net::Link>, std::unique_ptr<net::Link>> links(std::size_t host) {
    const auto agent = net::ProcessName::host_agent(static_cast<std::uint32_t>(host));
    const auto launcher = net::ProcessName::coordinator();
    return net::memory_link({launcher, {}, 1, options(agent, agent)},
                            {agent, {}, 1, options(agent, launcher)});
  }
  static net::LinkOptions options(net::ProcessName agent, net::ProcessName peer) {
    return base::service_link(base::kReachService, agent, peer, "", std::chrono::seconds(60));
  }

  std::vector<std::unique_ptr<ReachService>> ends;
  std::unique_ptr<ReachClient> reach;
};

}  // namespace strait::hosts
