#pragma once

#include <map>

#include "framework/net/node.h"
#include "launcher/hosts/path_request.h"

namespace strait::hosts {

// Bytes received until `seconds` of the receiving host's steady clock.
struct FlowSample {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes per second of a flow in its steady state: TCP's slow start is left out, and a short stall
// of either end does not count. 0: too few samples. Samples in order of time.
double flow_rate_of_samples(std::span<const FlowSample> samples);

// A host's ends of the links on which paths are measured: as a stage's links, so that a measurement
// shows what training will get. They carry zeros; the size of a frame says what it means.
//
// One thread. LinkError: a peer or its path is lost. PathError: no end in time.
class ProbeLinks {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Listens for the peers on free ports of the range.
  ProbeLinks(net::NodeOptions node, std::pair<int, int> ports, const OpenPort& request);
  ProbeLinks(const ProbeLinks&) = delete;
  ProbeLinks& operator=(const ProbeLinks&) = delete;

  const PortOpened& opened() const { return opened_; }

  // Connects to all targets at the same time, and measures the shortest of some round trips. Keeps
  // the links that come up.
  std::vector<PathResult> try_paths(std::span<const PathTarget> targets,
                                    std::chrono::milliseconds limit, int pings = 1);

  // Sends as fast as the path allows, on one link per endpoint. The peer calls receive_flow
  // meanwhile.
  void send_flow(std::int64_t peer, const std::vector<std::string>& endpoints, double seconds,
                 Deadline deadline);

  // Bytes per second of all the links together.
  double receive_flow(std::int64_t peer, const std::vector<std::string>& endpoints,
                      Deadline deadline);

 private:
  net::LinkOptions options(std::int64_t peer, const std::string& name) const;
  net::Link& dial(std::int64_t peer, const std::string& endpoint, std::chrono::milliseconds limit);
  std::vector<net::Link*> links(std::int64_t peer, const std::vector<std::string>& endpoints);

  const net::ProcessName name_;
  std::map<std::int64_t, std::string> keys_;  // of the peers
  PortOpened opened_;
  net::Node node_;
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  // By peer and endpoint. Two maps, because another host may listen at an address that this host
  // has, too, such as that of a bridge for containers. Destroyed before the listeners.
  using Links = std::map<std::pair<std::int64_t, std::string>, std::unique_ptr<net::Link>>;
  Links expected_;
  Links dialled_;
};

}  // namespace strait::hosts
