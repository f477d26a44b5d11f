#include "launcher/hosts/host_calls.h"

#include <thread>

#include "launcher/base/errors.h"
#include "launcher/hosts/ssh_session.h"

namespace strait::hosts {

std::vector<std::string> call_hosts(const recipe::Recipe::Hosts& settings,
                                    const std::vector<recipe::RecipeHost>& hosts,
                                    std::chrono::steady_clock::time_point deadline) {
  std::vector<std::string> reasons(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        SshSession({hosts[i].name, settings.ssh_config, settings.address})
            .launcher_address(deadline);
      } catch (const base::UserError& error) {
        reasons[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return reasons;
}

}  // namespace strait::hosts
