#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "framework/net/link.h"
#include "launcher/reach/probe_server.h"
#include "launcher/reach/reach_message.h"
#include "launcher/reach/relay_client.h"

namespace strait::reach {

// A keeper's end of the service "reach": tries and measures paths as the launcher asks, one order
// after the other, and holds this host's ends of relayed links. Own thread, which the destructor
// joins once the order at hand is done. A link that dies ends the service; the keeper has its own.
class ReachService {
 public:
  // How this machine's compute is measured; on the service's thread.
  using Measure = std::function<ComputeMeasured(const MeasureCompute&)>;

  ReachService(std::unique_ptr<net::Link> link, std::uint32_t host, std::pair<int, int> ports,
           Measure measure);
  ReachService(const ReachService&) = delete;
  ReachService& operator=(const ReachService&) = delete;
  ~ReachService();

 private:
  void serve();
  std::optional<ReachAnswer> obey(const ReachOrder& order);
  std::optional<ReachAnswer> answer(const OpenPort& order);
  std::optional<ReachAnswer> answer(const TryPaths& order);
  std::optional<ReachAnswer> answer(const MeasureRoundTrip& order);
  std::optional<ReachAnswer> answer(const MeasureFlow& order);
  std::optional<ReachAnswer> answer(const MeasureCompute& order);
  std::optional<ReachAnswer> answer(const DialRelay& order);
  std::optional<ReachAnswer> answer(const BindRelay& order);
  std::optional<ReachAnswer> answer(const ClosePort& order);
  RelayClient& relay_client();

  const std::unique_ptr<net::Link> link_;
  const std::uint32_t host_;
  const std::pair<int, int> ports_;
  const Measure measure_;
  std::unique_ptr<ProbeServer> port_;
  std::unique_ptr<RelayClient> relay_client_;  // null: nothing is relayed
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};


// Has `strait-stage --measure` answer, a process of its own that ends with it: a keeper has no
// libtorch. Waits for it, less than a minute. UserError: it could not, with its own last words.
ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& order);

}  // namespace strait::reach
