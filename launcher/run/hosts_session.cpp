#include "launcher/run/hosts_session.h"

#include <utility>

#include "launcher/hosts/agent_starter.h"

namespace strait::run {

HostsSession::HostsSession(plan::Plan plan, const ModelQuestions& model,
                           const std::function<void(const std::string&)>& report)
    : run_{net::RunId::random(), std::move(plan)},
      directory_(RunDirectory::create(scratch_.path() / "run", RunDirectory::Existing::refuse)) {
  hosts::check_launcher_address(run_.plan.recipe.hosts);
  node_ = std::make_unique<net::Node>(launcher_node(run_.run, directory_.next_generation()));
  if (run_.plan.recipe.hosts.backend == recipe::BackendKind::join) {
    for (const std::string& note : hosts::join_instructions(run_.plan, directory_.path()))
      report(note);
  }
  hosts_ = std::make_unique<RunHosts>(*node_, run_, directory_, model, signals_.count());
}

}  // namespace strait::run
