#pragma once

#include <zmq.hpp>

#include "framework/mutex.h"
#include "framework/net/background_pace.h"
#include "framework/net/flow_count.h"
#include "framework/net/inbox.h"
#include "framework/net/link_protocol.h"
#include "framework/net/memory_transport.h"
#include "framework/net/rate_meter.h"
#include "framework/net/socket_settings.h"
#include "framework/net/uplink.h"

namespace strait::net {

// A Link over the protocol core. The program's threads use one side, the net thread the other, and
// one mutex is between them. Messages go through compose() and arrived(); the class does not know
// which socket carries them.
class LinkEnd : public InboxLink {
 public:
  using Time = LinkProtocol::Time;

  // wake: called after every change that concerns the net thread, by any thread; must not block.
  // uplink: shared with the other ends of the net thread, and used by that thread only.
  LinkEnd(const ProtocolOptions& options, std::function<void()> wake, Uplink& uplink);

  bool send_until(Frame& frame, Time deadline) override;
  Frame receive() override;
  std::optional<Frame> receive_until(Time deadline) override;
  bool flush(Time deadline) override;
  void on_arrival(std::function<void()> notify) override;
  void abort(const LinkError& cause) override;
  LinkState state() const override;

  // For the net thread.
  void limit_flows(unsigned least, unsigned most);  // before the path is up
  struct Flows {
    std::uint8_t open = 0;  // bit k: flow k
    std::uint8_t used = 0;
    unsigned wanted = 1;
    bool has(unsigned flow) const { return (used >> flow & 1U) != 0; }
  };
  Flows flows() const;
  void path_up(Time now, unsigned flow = 0);
  void path_down(Time now, unsigned flow = 0);
  void close_flow(unsigned flow);  // an unused one
  void arrived(Time now, const zmq::message_t& message, unsigned flow = 0);
  void tick(Time now);
  void record_problem(const std::string& message);
  void set_peer_address(const std::string& address);
  void close();
  Time last_heard() const;
  // The next message for the wire, sealed. False: there is none.
  bool compose(Time now, zmq::message_t& message);
  // The same, of what goes over this one of several flows. It need not be sent.
  bool compose_heartbeat(Time now, unsigned flow, zmq::message_t& message);

 private:
  void throw_if_failed() STRAIT_REQUIRES(mutex_);
  void measure(Time now) STRAIT_REQUIRES(mutex_);
  std::uint64_t fragment_limit(Time now) STRAIT_REQUIRES(mutex_);
  void note_fragment(Time now, std::uint64_t payload) STRAIT_REQUIRES(mutex_);
  void share_memory() STRAIT_REQUIRES(mutex_);
  void follow_peer_memory() STRAIT_REQUIRES(mutex_);
  bool sends_in_memory() const { return memory_ && memory_->peer_reads(); }
  void report_to_uplink() STRAIT_REQUIRES(mutex_);
  // Wakes what waits for a change. Not with the lock: a woken thread would block on it at once.
  void announce() STRAIT_EXCLUDES(mutex_);
  // Changes the protocol under the lock, and announces it.
  template <typename Change>
  void change(Change&& change_protocol);

  const Priority priority_;
  const std::function<void()> wake_;
  Uplink& uplink_;
  ConnectionBytes connection_;  // used by the net thread only
  // Changed under mutex_; resolve() is called by the net thread without it. Empty: none is shared.
  std::optional<MemoryTransport> memory_;
  Uplink::Load load_ = Uplink::Load::none;  // as last reported to the uplink; net thread only
  mutable Mutex mutex_;
  Condition changed_;
  std::function<void()> on_arrival_ STRAIT_GUARDED_BY(mutex_);  // of an inbox; empty: none
  LinkProtocol protocol_ STRAIT_GUARDED_BY(mutex_);
  std::string memory_problem_ STRAIT_GUARDED_BY(mutex_);
  RateMeter rate_ STRAIT_GUARDED_BY(mutex_);
  FlowCount flow_count_ STRAIT_GUARDED_BY(mutex_);
  FragmentSize fragment_ STRAIT_GUARDED_BY(mutex_);  // of a foreground link
  BackgroundPace pace_ STRAIT_GUARDED_BY(mutex_);    // of a background link
};

}  // namespace strait::net
