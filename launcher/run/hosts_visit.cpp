#include "launcher/run/hosts_visit.h"

#include <utility>

#include "launcher/join/join_call.h"

namespace strait::launcher {

HostsVisit::HostsVisit(Plan plan, const std::function<void(const std::string&)>& say)
    : run_{net::RunId::random(), std::move(plan)},
      directory_(RunDirectory::create(scratch_.path() / "run", RunDirectory::Existing::refuse)) {
  net::NodeOptions options;
  options.name = net::ProcessName::coordinator();
  options.run = run_.run;
  options.generation = directory_.next_generation();
  options.keys = net::CurveKeyPair::generate();
  node_ = std::make_unique<net::Node>(options);
  if (run_.plan.recipe.hosts.backend == BackendKind::join) {
    for (const std::string& note : join_notes(run_.plan, directory_.path())) say(note);
  }
  hosts_ = std::make_unique<RunHosts>(*node_, run_, directory_, signals_.count());
}

}  // namespace strait::launcher
