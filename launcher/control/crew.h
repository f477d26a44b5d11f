#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/control/coordinator.h"

namespace strait::control {

// One station and what we know of it.
struct CrewMember {
  Station station;
  std::optional<Hello> hello;
  std::optional<Ready> ready;
  std::optional<Progress> progress;
  std::chrono::steady_clock::time_point heard;
  bool done = false;       // it said Done
  bool failed = false;     // it said Failed
  bool link_over = false;  // nothing more will come from it
  bool killed = false;     // by us
  bool parted = false;     // its replica is not there, and the run goes on without it
  bool joins = false;      // its replica comes back, and takes no part yet
  std::optional<process::ExitStatus> status;
  std::chrono::steady_clock::time_point ended;  // when we saw that

  std::string host() const;      // empty when nobody knows
  std::string describe() const;  // "stage 1.0 (host b)"
  bool is_ready() const { return parted || ready.has_value(); }
  bool is_done() const { return done; }
  // Its process has ended, or, where there is none, its link.
  bool gone() const { return parted || ended_or_silent(); }
  bool ended_or_silent() const { return station.process ? status.has_value() : link_over; }
};

// The processes of a run, as the coordinator handles them: spoken to together, watched for their
// end, and killed and reaped at the latest when this object ends. One thread.
class Crew {
 public:
  explicit Crew(std::vector<Station> stations);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::vector<CrewMember>& members() { return members_; }
  const std::vector<CrewMember>& members() const { return members_; }
  std::vector<net::ProcessName> names() const;
  const CrewMember& member(net::ProcessName name) const;
  CrewMember& member(net::ProcessName name);
  bool all(bool (CrewMember::*are)() const) const;
  // Those that are there.
  std::vector<net::ProcessName> present() const;
  // Of all that are ready and there: link name → endpoint. MessageError: two of them bound the same
  // link.
  std::map<std::string, std::string> endpoints() const;
  std::vector<ProcessReport> reports(std::chrono::steady_clock::time_point now) const;

  // To everybody who is still there. A dead link is not an error here: whoever listens to it says
  // so.
  void tell_all(const CoordinatorMessage& message);
  void tell(CrewMember& member, const CoordinatorMessage& message);

  // Notes who has ended meanwhile; returns them.
  std::vector<CrewMember*> look_for_ends();
  void kill(CrewMember& member);
  void kill_all();

 private:
  std::vector<CrewMember> members_;
};

}  // namespace strait::control
