#pragma once

#include "launcher/recipe/plan.h"
#include "launcher/recipe/speeds.h"

namespace strait::planner {

// How long the lines of hosts are busy in a step: everything that a host sends shares its uplink,
// and everything that it receives its downlink. On a single machine each process stands for a host.
class HostLines {
 public:
  // With what boundaries and tied tables carry, in a step of the first epoch or a later one. `plan`
  // outlives it.
  HostLines(const plan::Plan& plan, const plan::PathSpeeds& speed, bool first_epoch = false);

  void carry(const plan::Plan::Process& from, const plan::Plan::Process& to, double bytes,
             const plan::PathSpeed& path);

  // Seconds of the line that is busy longest.
  double busiest_seconds() const;
  // The host, or on a single machine the process, whose line that is.
  std::string busiest() const;

 private:
  struct Line {
    double up = 0;  // seconds of a step
    double down = 0;
    double seconds() const { return up > down ? up : down; }
  };
  std::size_t line_of(const plan::Plan::Process& process) const;
  std::size_t busiest_line() const;

  const plan::Plan& plan_;
  std::vector<Line> lines_;
};

// Lengthens the forecast steps of a plan to what its lines take. Needs boundaries and tied tables.
void wait_for_lines(plan::Plan& plan);

}  // namespace strait::planner
