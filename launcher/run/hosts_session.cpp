#include "launcher/run/hosts_session.h"

#include <cstdlib>
#include <system_error>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_starter.h"

namespace strait::run {

ScratchFolder::ScratchFolder(const std::string& purpose) {
  std::string name =
      (std::filesystem::temp_directory_path() / ("strait-" + purpose + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw base::UserError(base::ExitCode::storage_io, "cannot create a temporary folder " + name);
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // the system removes temporary files eventually
  std::filesystem::remove_all(path_, ignored);
}

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
