#pragma once

#include <poll.h>

#include <thread>

#include "framework/file_descriptor.h"
#include "framework/mutex.h"
#include "framework/net/node.h"
#include "framework/net/wake_signal.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/hosts/forwarding.h"
#include "launcher/hosts/probe_links.h"

namespace strait::hosts {

// A host's ends of relayed links. For a stage that listens, it keeps a connection to the relay
// ready and forwards it to the stage once the other end is connected. For a stage that connects, it
// listens on loopback and forwards to the relay. Reconnects for as long as it lives.
//
// Own thread, which the destructor joins; any thread may call.
class RelayClient {
 public:
  // `on_event` gets a message when the relay stops answering; called on the own thread.
  explicit RelayClient(std::function<void(const std::string&)> on_event);
  RelayClient(const RelayClient&) = delete;
  RelayClient& operator=(const RelayClient&) = delete;
  ~RelayClient();

  // The stage listens at `stage`. Called again for the same token: the endpoint has changed.
  void bind(const net::Endpoint& relay, const std::string& token, const net::Endpoint& stage);

  // The endpoint on this host for the stage that connects; the same for every call with this token.
  // PathError: no port.
  net::Endpoint dial(const net::Endpoint& relay, const std::string& token);

 private:
  // Keeps one connection at the relay ready.
  struct BindEnd {
    net::Endpoint relay;
    std::string token;
    net::Endpoint stage;
    FileDescriptor ready;
    bool greeted = false;
    Instant try_at{};
    std::chrono::milliseconds pause{0};  // before the next try
    bool reported = false;               // that the relay does not answer
  };
  struct DialEnd {
    net::Endpoint relay;
    std::string token;
    FileDescriptor listener;
  };

  void serve();
  void take_commands() STRAIT_EXCLUDES(mutex_);
  void prepare(BindEnd& end, Instant now);
  void proceed(BindEnd& end, const pollfd& poll, Instant now);
  void fail(BindEnd& end, const std::string& why, Instant now);
  void pass_on(BindEnd& end);
  void answer(const DialEnd& end);
  int poll_limit(Instant now) const;

  std::function<void(const std::string&)> on_event_;
  net::WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  Mutex mutex_;
  std::vector<BindEnd> new_binds_ STRAIT_GUARDED_BY(mutex_);
  std::vector<DialEnd> new_dials_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::string, net::Endpoint> ports_ STRAIT_GUARDED_BY(mutex_);  // of dials, by token
  // The thread's own.
  std::vector<BindEnd> binds_;
  std::vector<DialEnd> dials_;
  ForwardingSet forwardings_;
  std::thread thread_;
};

// What an agent does about paths: probes and measures them, and owns this host's ends of relayed
// links. One thread.
class PathService {
 public:
  // Measures how fast this machine computes.
  using Measure = std::function<ComputeMeasured(const MeasureCompute&)>;

  // `node`: the agent's name and keys, for links that measure paths.
  PathService(net::NodeOptions node, std::pair<int, int> ports, Measure measure)
      : node_(std::move(node)), ports_(std::move(ports)), measure_(std::move(measure)) {}

  // Errors are replies, too: the launcher decides what they mean for the run.
  template <class Request>
  ReplyTo<Request> perform(const Request& request) {
    try {
      return reply_to(request);
    } catch (const PathError& error) {
      return Failure{base::ExitCode::peer_lost, error.what()};
    } catch (const std::exception& error) {
      return base::describe_failure(error);
    }
  }

 private:
  PortOpened reply_to(const OpenPort& request);
  PathsTried reply_to(const TryPaths& request);
  FlowMeasured reply_to(const MeasureFlow& request);
  ComputeMeasured reply_to(const MeasureCompute& request) { return measure_(request); }
  ListensAt reply_to(const JoinRelay& request);
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
