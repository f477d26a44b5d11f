#pragma once

#include <chrono>
#include <cstdint>

#include "framework/net/link_options.h"

namespace strait::net {

// The uplink that the links of one process share: foreground links report what they
// have, background links ask before they put a chunk on the wire. Belongs to the net thread. Pure:
// no clock, no lock.
class Uplink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class Load : std::uint8_t {
    none,       // nothing, or no path to the peer
    in_flight,  // all is with the socket, and the peer has not confirmed it yet
    waiting,    // there are bytes that the socket has not got
  };

  // A link's load changes. A link that goes away ends with none.
  void change(Priority priority, Load before, Load after);
  // `bytes_per_second`: of that link's path; 0: not measured yet.
  void foreground_sent(std::uint64_t bytes, double bytes_per_second);

  bool foreground_waits() const { return foreground_waiting_ > 0; }
  bool foreground_in_flight() const { return foreground_waiting_ + foreground_in_flight_ > 0; }
  struct Sent {  // ever
    std::uint64_t bytes = 0;
    std::chrono::duration<double> takes{0};  // of those whose path is measured
    std::uint64_t unmeasured = 0;            // the others
  };
  const Sent& foreground() const { return foreground_; }
  double foreground_rate() const { return foreground_rate_; }  // measured last; 0: not yet
  int background_links() const { return background_; }         // with any load

  // When a round is due though nothing arrives: a background link waits for time to pass, or what
  // it waited for has just ended.
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
