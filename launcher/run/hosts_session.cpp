#include "launcher/run/hosts_session.h"

#include <cstdlib>

namespace strait::run {

HostsSession::HostsSession(plan::Plan plan, const ModelQuestions& model,
                           const std::function<void(const std::string&)>& report)
    : run_{net::RunId::random(), std::move(plan)},
      directory_(RunDirectory::create(scratch_.path() / "run", RunDirectory::Existing::refuse)) {
  hosts::check_launcher_address(run_.plan.recipe.hosts);
  node_ = std::make_unique<net::Node>(launcher_node(run_.run, directory_.next_generation()));
  rendezvous_ = hosts::open_rendezvous(run_.plan.recipe, directory_.path());
  if (rendezvous_) rendezvous_->end(base::ExitCode::done, "");  // whatever is measured
  for (const std::string& note : hosts::join_instructions(run_.plan.recipe, directory_.path()))
    report(note);
  hosts_ = std::make_unique<RunHosts>(*node_, run_, directory_, model, signals_.count(),
                                      rendezvous_.get());
}

}  // namespace strait::run
