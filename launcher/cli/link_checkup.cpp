#include "launcher/cli/link_checkup.h"

#include <fmt/ranges.h>

#include "framework/net/link_error.h"
#include "launcher/base/errors.h"
#include "launcher/cli/run_options.h"
#include "launcher/run/hosts_session.h"

namespace strait::cli {

std::vector<hosts::CheckResult> judge_links(const plan::Plan& plan,
                                            const std::vector<hosts::LinkRoute>& routes,
                                            const std::vector<run::Event>& notes) {
  std::vector<hosts::CheckResult> results;
  results.reserve(notes.size() + routes.size());
  for (const run::Event& note : notes) {
    results.push_back({hosts::CheckResult::Kind::note, base::ExitCode::done, "links", note.text});
  }
  // One line for all links of one route.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, std::vector<std::string>> groups;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const plan::Plan::Link& link = plan.links[i];
    const hosts::LinkRoute& route = routes[i];
    const std::size_t binds = plan.process(route.binds).host_index;
    const std::size_t dials =
        plan.process(route.binds == link.listens ? link.connects : link.listens).host_index;
    if (route.relayed || binds == dials) continue;
    groups[{dials, binds, route.address}].push_back(link.name);
  }
  for (const auto& [route, links] : groups) {
    const auto& [dials, binds, address] = route;
    results.push_back({hosts::CheckResult::Kind::ok, base::ExitCode::done, "links",
                       fmt::format("{} reaches {} at {}: {}", plan.hosts[dials].name,
                                   plan.hosts[binds].name, address, fmt::join(links, ", "))});
  }
  return results;
}

std::vector<hosts::CheckResult> check_links(const plan::Plan& plan) {
  try {
    const run::ModelQuestions model = model_questions();
    run::HostsSession session(plan, model, [](const std::string&) {});
    return judge_links(session.plan(), session.hosts().routes(), session.hosts().notes());
  } catch (const base::UserError& error) {
    return {{hosts::CheckResult::Kind::wrong, error.code(), "links", error.what()}};
  } catch (const net::LinkError& error) {
    return {{hosts::CheckResult::Kind::wrong, base::exit_code_of(error), "links", error.what()}};
  }
}

}  // namespace strait::cli
