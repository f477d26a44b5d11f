#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "framework/net/node.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/probe_links.h"
#include "launcher/hosts/relay_client.h"

namespace strait::hosts {

// What an agent does about paths: probes and measures them, and owns this host's ends of relayed
// links. One thread.
class PathService {
 public:
  // Measures how fast this machine computes.
  using Measure = std::function<ComputeMeasured(const MeasureCompute&)>;

  // `node`: the agent's name and keys, for links that measure paths.
  PathService(net::NodeOptions node, std::pair<int, int> ports, Measure measure)
      : node_(std::move(node)), ports_(std::move(ports)), measure_(std::move(measure)) {}

  // The reply. Errors are replies, too: the launcher decides what they mean for the run.
  AgentMessage perform(const PathRequest& request);

 private:
  AgentMessage reply_to(const OpenPort& request);
  AgentMessage reply_to(const TryPaths& request);
  AgentMessage reply_to(const SendFlow& request);
  AgentMessage reply_to(const ReceiveFlow& request);
  AgentMessage reply_to(const MeasureCompute& request) { return measure_(request); }
  AgentMessage reply_to(const DialRelay& request);
  AgentMessage reply_to(const BindRelay& request);
  ProbeLinks& probe_links();
  RelayClient& relay_client();

  const net::NodeOptions node_;
  const std::pair<int, int> ports_;
  const Measure measure_;
  std::unique_ptr<ProbeLinks> probe_links_;    // null: no port is open
  std::unique_ptr<RelayClient> relay_client_;  // null: nothing is relayed
};

// Runs `strait-stage --measure` and returns its answer: an agent has no libtorch. Blocks for 50 s
// at most. UserError: it failed, with the last line of its stderr.
ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& request);

}  // namespace strait::hosts
