#pragma once

#include "framework/net/link_options.h"

namespace strait::net {

// The uplink that the links of a process share. Foreground links report their load, and background
// links ask before they send a fragment. Used by the net thread only. Pure: no clock, no lock.
class Uplink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class Load : std::uint8_t {
    none,       // nothing to send, or no path to the peer
    in_flight,  // everything was given to the socket, and is not confirmed yet
    waiting,    // bytes that the socket has not taken yet
  };

  // The load of a link changes. A link that is destroyed ends with none.
  void change(Priority priority, Load before, Load after);
  // `bytes_per_second`: speed of that link's path; 0: not measured yet.
  void foreground_sent(std::uint64_t bytes, double bytes_per_second);

  bool foreground_waits() const { return foreground_waiting_ > 0; }
  bool foreground_in_flight() const { return foreground_waiting_ + foreground_in_flight_ > 0; }
  struct Sent {  // since the process started
    std::uint64_t bytes = 0;
    std::chrono::duration<double> takes{0};  // by the bytes whose path is measured
    std::uint64_t unmeasured = 0;            // the other bytes
  };
  const Sent& foreground() const { return foreground_; }
  double foreground_rate() const { return foreground_rate_; }  // the latest measurement; 0: none
  int background_links() const { return background_; }         // with a load

  // When a round is due without an event: a background link waits for time to pass, or its wait has
  // just ended.
  void ask_again_at(Time due) { due_ = due < due_ ? due : due_; }
  Time take_due();

 private:
  int foreground_waiting_ = 0;
  int foreground_in_flight_ = 0;
  int background_ = 0;
  Sent foreground_;
  double foreground_rate_ = 0;
  Time due_ = Time::max();
};

}  // namespace strait::net
