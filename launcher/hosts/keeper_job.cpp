#include "launcher/hosts/keeper_job.h"

#include <fmt/format.h>

#include "framework/store/bounded_json.h"
#include "launcher/base/json_fields.h"

namespace strait::hosts {

void describe(auto& f, base::Is<KeeperJob> auto& m) {
  f("run", m.run), f("run_name", m.run_name), f("generation", m.generation), f("host", m.host);
  f("host_name", m.host_name), f("build", m.build), f("public_key", m.keys.public_key);
  f("secret_key", m.keys.secret_key), f("launcher_key", m.launcher_key);
  f("endpoints", m.endpoints), f("keeper_keys", m.keeper_keys), f("directory", m.directory);
  f("environment", m.environment), f("address", m.address), f("devices", m.devices);
  f("ports", m.ports), f("hold", m.hold), f("up_megabits", m.up_megabits);
  f("down_megabits", m.down_megabits);
}

std::string to_text(const KeeperJob& job) { return base::to_object(job).dump(); }

KeeperJob parse_keeper_job(const std::string& text) {
  const auto refuse = [](const char* cause) -> base::UserError {
    return {base::ExitCode::mismatch,
            fmt::format("this is not a run token of this build: {}", cause)};
  };
  try {
    return base::from_object<KeeperJob>(store::parse_bounded_json(text), "run token");
  } catch (const store::JsonError& error) {
    throw refuse(error.what());
  } catch (const base::MessageError& error) {
    throw refuse(error.what());
  }
}

}  // namespace strait::hosts
