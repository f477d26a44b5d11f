#include "launcher/probe/link_checkup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "launcher/run/hosts_visit.h"
#include "launcher/user_error.h"

namespace strait::launcher {

std::vector<Symptom> judge_links(const Plan& plan, const std::vector<LinkRoute>& routes,
                                 const std::vector<Event>& notes) {
  std::vector<Symptom> findings;
  findings.reserve(notes.size() + routes.size());
  for (const Event& note : notes) {
    findings.push_back({Symptom::Kind::note, ExitCode::done, "links", note.text});
  }
  // One line for all that meet in the same way.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, std::vector<std::string>> ways;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const Plan::Link& link = plan.links[i];
    const LinkRoute& route = routes[i];
    const std::size_t binds = plan.process(route.binds).host_index;
    const std::size_t dials =
        plan.process(route.binds == link.listens ? link.connects : link.listens).host_index;
    if (route.relayed || binds == dials) continue;
    ways[{dials, binds, route.address}].push_back(link.name);
  }
  for (const auto& [way, links] : ways) {
    const auto& [dials, binds, address] = way;
    findings.push_back({Symptom::Kind::well, ExitCode::done, "links",
                        fmt::format("{} reaches {} at {}: {}", plan.hosts[dials].name,
                                    plan.hosts[binds].name, address, fmt::join(links, ", "))});
  }
  return findings;
}

std::vector<Symptom> check_links(const Plan& plan) {
  try {
    HostsVisit visit(plan, [](const std::string&) {});
    return judge_links(visit.plan(), visit.hosts().routes(), visit.hosts().notes());
  } catch (const UserError& error) {
    return {{Symptom::Kind::wrong, error.code(), "links", error.what()}};
  }
}

}  // namespace strait::launcher
