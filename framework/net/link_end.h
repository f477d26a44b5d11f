#pragma once

#include <limits>
#include <zmq.hpp>

#include "framework/mutex.h"
#include "framework/net/background_pace.h"
#include "framework/net/flow_count.h"
#include "framework/net/inbox.h"
#include "framework/net/link_protocol.h"
#include "framework/net/rate_meter.h"
#include "framework/net/socket_settings.h"
#include "framework/net/uplink.h"

namespace strait::net {

// How large a fragment may be, so that a path of any speed carries it well before it counts as
// silent. Pure: no clock, no lock.
//
// A measured rate is the best one of some time, and a path may slow down suddenly. While bytes are
// in flight without a pause, the path is assumed to be at most a few times as fast as its recent
// confirmations.
class FragmentSize {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The size on an unknown path, and the least size ever: 3.3 s at 10 kbit/s.
  static constexpr std::uint64_t kLeast = 4096;

  // `sent`: the position in the stream up to which everything is sent. `confirmed`: up to which the
  // peer has it.
  void update(Time now, std::uint64_t sent, std::uint64_t confirmed);

  // `rate`: measured, in bytes per second; 0: not measured yet.
  std::uint64_t limit(double rate) const;
  // The largest part of a frame of this size. Without this bound a path that was once fast would
  // get whole frames, whose confirmations never show that it has become slow.
  static std::uint64_t part_of(std::uint64_t frame_bytes);

 private:
  bool busy_ = false;
  Time began_{};
  std::uint64_t base_ = 0;                                 // confirmed when the interval began
  double most_ = std::numeric_limits<double>::infinity();  // bytes per second
};

// A Link over the protocol core. The program's threads use one side, the net thread the other, and
// one mutex is between them. Messages go through compose() and arrived(); the class does not know
// which socket carries them.
class LinkEnd : public InboxLink {
 public:
  using Time = LinkProtocol::Time;

  // wake: called after every change that concerns the net thread, by any thread; must not block.
  // uplink: shared with the other ends of the net thread, and used by that thread only.
  LinkEnd(ProtocolOptions options, std::function<void()> wake, Uplink& uplink);

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
  void report_to_uplink() STRAIT_REQUIRES(mutex_);
  // Wakes what waits for a change. Not with the lock: a woken thread would block on it at once.
  void announce() STRAIT_EXCLUDES(mutex_);
  // Changes the protocol under the lock, and announces it.
  template <typename Change>
  void change(Change&& change_protocol);

  const Priority priority_;
  const std::function<void()> wake_;
  Uplink& uplink_;
  ConnectionBytes connection_;              // used by the net thread only
  Uplink::Load load_ = Uplink::Load::none;  // as last reported to the uplink; net thread only
  mutable Mutex mutex_;
  Condition changed_;
  std::function<void()> on_arrival_ STRAIT_GUARDED_BY(mutex_);  // of an inbox; empty: none
  LinkProtocol protocol_ STRAIT_GUARDED_BY(mutex_);
  RateMeter rate_ STRAIT_GUARDED_BY(mutex_);
  FlowCount flow_count_ STRAIT_GUARDED_BY(mutex_);
  FragmentSize fragment_ STRAIT_GUARDED_BY(mutex_);  // of a foreground link
  BackgroundPace pace_ STRAIT_GUARDED_BY(mutex_);    // of a background link
};

}  // namespace strait::net
