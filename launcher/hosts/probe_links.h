#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/net/node.h"
#include "launcher/hosts/reach_message.h"

namespace strait::hosts {

// A host's ends of the links on which paths are measured: as a stage's links, so that a measurement
// shows what training will get. They carry zeros; the size of a frame says what it means.
//
// One thread. LinkError: a peer or its path is lost. PathError: no end in time.
class ProbeLinks {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Listens for the peers on free ports of the range.
  ProbeLinks(net::NodeOptions node, std::pair<int, int> ports, const OpenPort& command);
  ProbeLinks(const ProbeLinks&) = delete;
  ProbeLinks& operator=(const ProbeLinks&) = delete;

  const PortOpened& opened() const { return opened_; }

  // Connects to all targets at the same time. Keeps the links that come up.
  std::vector<PathResult> try_paths(std::span<const PathTarget> targets,
                                    std::chrono::milliseconds limit);

  // The shortest of `count` round trips.
  double round_trip(const PathTarget& target, int count, Deadline deadline);

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
