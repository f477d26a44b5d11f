#include "launcher/hosts/agent_job.h"

#include <fmt/format.h>

#include <cstdlib>

#include "framework/fields/json_fields.h"
#include "launcher/base/errors.h"
#include "launcher/base/launcher_links.h"
#include "launcher/hosts/agent_message.h"

namespace strait::hosts {

void describe(auto& f, fields::Is<AgentJob> auto& m) {
  f("run", m.run), f("run_name", m.run_name), f("generation", m.generation), f("host", m.host);
  f("host_name", m.host_name), f("build", m.build), f("public_key", m.keys.public_key);
  f("secret_key", m.keys.secret_key), f("launcher_key", m.launcher_key);
  f("endpoints", m.endpoints), f("directory", m.directory);
  f("environment", m.environment), f("address", m.address), f("devices", m.devices);
  f("ports", m.ports), f("hold", m.hold), f("up_megabits", m.up_megabits);
  f("down_megabits", m.down_megabits);
}

std::string to_text(const AgentJob& job) { return fields::to_object(job).dump(); }

AgentJob parse_agent_job(const std::string& text) {
  try {
    auto job = fields::from_text<AgentJob>(text, "an agent's job");
    for (const char* const service : {base::kAgentService, base::kTransferService}) {
      if (job.endpoints.contains(service)) continue;
      throw base::MessageError(fmt::format("it has no endpoint of the service \"{}\"", service));
    }
    return job;
  } catch (const base::MessageError& error) {
    throw base::UserError(
        base::ExitCode::mismatch,
        fmt::format("this is not the job of an agent of this build: {}", error.what()));
  }
}

namespace fs = std::filesystem;

fs::path agent_directory(const std::string& written) {
  const char* home = std::getenv("HOME");
  if (written == "~" || written.starts_with("~/")) {
    if (home == nullptr || *home == '\0') {
      throw base::UserError(
          base::ExitCode::bad_input,
          fmt::format("the directory {} needs $HOME, which is not set; set it, or "
                      "directory of this host in hosts.list",
                      written));
    }
    return fs::path(home) / fs::path(written.substr(written.size() > 1 ? 2 : 1));
  }
  return fs::absolute(written);
}

fs::path host_run_directory(const fs::path& directory, const std::string& run_name,
                            const net::RunId& run) {
  return directory / "runs" / fmt::format("{}-{}", run_name, run.hex().substr(0, 8));
}

}  // namespace strait::hosts
