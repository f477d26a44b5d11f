#include "launcher/planner/host_lines.h"

namespace strait::planner {

HostLines::HostLines(const plan::Plan& plan, const plan::PathSpeeds& speed, bool first_epoch)
    : plan_(plan), lines_(plan.hosts.size() == 1 ? plan.processes.size() : plan.hosts.size()) {
  for (const plan::Plan::Link& link : plan.links) {
    if (link.use != plan::Plan::Use::boundary && link.use != plan::Plan::Use::tie) continue;
    const plan::Plan::Process& upper = plan.process(link.connects);
    const plan::Plan::Process& lower = plan.process(link.listens);
    carry(upper, lower,
          static_cast<double>(first_epoch ? link.first_forward_bytes : link.forward_bytes),
          speed(link, upper.host_index, lower.host_index));
    carry(lower, upper, static_cast<double>(link.backward_bytes),
          speed(link, lower.host_index, upper.host_index));
  }
}

std::size_t HostLines::line_of(const plan::Plan::Process& process) const {
  if (plan_.hosts.size() > 1) return process.host_index;
  return process.name.replica * static_cast<std::size_t>(plan_.recipe.pipeline.stages) +
         process.name.stage;
}

void HostLines::carry(const plan::Plan::Process& from, const plan::Plan::Process& to, double bytes,
                      const plan::PathSpeed& path) {
  if (line_of(from) == line_of(to)) return;
  lines_.at(line_of(from)).up += bytes / path.uplink;
  lines_.at(line_of(to)).down += bytes / path.downlink;
}

std::size_t HostLines::busiest_line() const {
  return static_cast<std::size_t>(std::ranges::max_element(lines_, {}, &Line::seconds) -
                                  lines_.begin());
}

double HostLines::busiest_seconds() const {
  return lines_.empty() ? 0 : lines_[busiest_line()].seconds();
}

std::string HostLines::busiest() const {
  const std::size_t line = busiest_line();
  return plan_.hosts.size() > 1 ? plan_.hosts[line].name : plan_.processes.at(line).name.describe();
}

void wait_for_lines(plan::Plan& plan) {
  const plan::PathSpeeds speed = plan::direct_speeds(plan);
  plan.step_seconds = std::max(plan.step_seconds, HostLines(plan, speed).busiest_seconds());
  plan.first_epoch_step_seconds =
      std::max(plan.first_epoch_step_seconds, HostLines(plan, speed, true).busiest_seconds());
}

}  // namespace strait::planner
