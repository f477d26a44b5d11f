#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "framework/net/link.h"
#include "framework/net/node.h"
#include "launcher/hosts/probe_links.h"
#include "launcher/hosts/reach_message.h"
#include "launcher/hosts/relay_client.h"

namespace strait::hosts {

// The agent's end of the service "reach": probes and measures paths on the launcher's commands, one
// at a time, and owns this host's ends of relayed links. Own thread, which the destructor joins
// after the current command. A lost link ends the service, but not the agent, which has its own
// link.
class ReachService {
 public:
  // Measures how fast this machine computes; called on the service's thread.
  using Measure = std::function<ComputeMeasured(const MeasureCompute&)>;

  // `node`: the agent's name and keys, for links that measure paths.
  ReachService(std::unique_ptr<net::Link> link, net::NodeOptions node, std::pair<int, int> ports,
               Measure measure);
  ReachService(const ReachService&) = delete;
  ReachService& operator=(const ReachService&) = delete;
  ~ReachService();

 private:
  void serve();
  std::optional<ReachAnswer> execute(const ReachCommand& command);
  std::optional<ReachAnswer> answer(const OpenPort& command);
  std::optional<ReachAnswer> answer(const TryPaths& command);
  std::optional<ReachAnswer> answer(const MeasureRoundTrip& command);
  std::optional<ReachAnswer> answer(const SendFlow& command);
  std::optional<ReachAnswer> answer(const ReceiveFlow& command);
  std::optional<ReachAnswer> answer(const MeasureCompute& command);
  std::optional<ReachAnswer> answer(const DialRelay& command);
  std::optional<ReachAnswer> answer(const BindRelay& command);
  std::optional<ReachAnswer> answer(const ClosePort& command);
  ProbeLinks& probe_links();
  RelayClient& relay_client();

  const std::unique_ptr<net::Link> link_;
  const net::NodeOptions node_;
  const std::pair<int, int> ports_;
  const Measure measure_;
  std::unique_ptr<ProbeLinks> probe_links_;    // null: no port is open
  std::unique_ptr<RelayClient> relay_client_;  // null: nothing is relayed
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

// Runs `strait-stage --measure` and returns its answer: an agent has no libtorch. Blocks for 50 s
// at most. UserError: it failed, with the last line of its stderr.
ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& command);

}  // namespace strait::hosts
