
#include <cstdio>
#include <thread>

#include "framework/store/store_error.h"
#include "launcher/compute/verbs.h"
#include "launcher/hosts/host_install.h"

namespace strait::compute {
namespace {

using Clock = std::chrono::steady_clock;

// Hosts at the same time. More would only share the uplink.
constexpr std::size_t kConcurrentHosts = 8;
constexpr auto kReportEvery = std::chrono::seconds(5);

// Prints the lines of all hosts, and keeps the first failure in the order of the recipe.
class InstallReport {
 public:
  explicit InstallReport(std::size_t hosts) : codes_(hosts, base::ExitCode::done) {}

  void print(const std::string& line) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    fmt::print("{}\n", base::printable(line));
    // An install takes minutes, and stdout may be a pipe.
    std::fflush(stdout);
  }
  void fail(std::size_t host, base::ExitCode code) STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    codes_[host] = code;
  }
  base::ExitCode first_failure() STRAIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto bad = std::ranges::find_if(
        codes_, [](base::ExitCode one) { return one != base::ExitCode::done; });
    return bad == codes_.end() ? base::ExitCode::done : *bad;
  }

 private:
  Mutex mutex_;
  std::vector<base::ExitCode> codes_ STRAIT_GUARDED_BY(mutex_);
};

void install_one(const hosts::InstallTarget& target, std::size_t number,
                 const std::vector<hosts::Build>& builds, InstallReport& report) {
  const auto begun = Clock::now();
  auto reported = begun;
  try {
    const hosts::Installed installed =
        hosts::install_on_host(target, builds, [&](std::uint64_t sent, std::uint64_t to_send) {
          if (Clock::now() - reported < kReportEvery) return;
          reported = Clock::now();
          report.print(fmt::format("{}: {} of {} sent", target.host, base::byte_text(sent),
                                   base::byte_text(to_send)));
        });
    const double elapsed = std::chrono::duration<double>(Clock::now() - begun).count();
    report.print(fmt::format("{}: has strait {}{}, {} of {} sent, {:.1f} s", target.host,
                             base::build_id(), installed.has_cuda ? " with CUDA" : "",
                             base::byte_text(installed.sent), base::byte_text(installed.all),
                             elapsed));
    if (installed.has_gpu && !installed.has_cuda) {
      report.print(
          fmt::format("{}: has a GPU, which this build for CPUs does not use; build strait with a "
                      "libtorch that has CUDA, too, and install again with --other-build FOLDER",
                      target.host));
    }
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    report.print(fmt::format("strait: {}", failure.text));
    report.fail(number, failure.code);
  }
}

// This build, and one of the other kind: in the folder that the user names, or where it is usual.
std::vector<hosts::Build> builds_here(const std::filesystem::path& named) {
  std::vector<hosts::Build> builds = {hosts::build_in(base::own_program().parent_path())};
  if (!named.empty()) {
    builds.push_back(hosts::build_in(named));
    return builds;
  }
  const std::filesystem::path usual =
      hosts::programs_of_other_kind(base::own_program().parent_path(), builds[0].has_cuda());
  if (!std::filesystem::exists(usual / "strait-stage")) return builds;
  try {
    builds.push_back(hosts::build_in(usual));
  } catch (const base::UserError& error) {
    fmt::print("not used: {}\n", error.what());
  } catch (const store::StoreError& error) {
    fmt::print("not used: {}\n", error.what());
  }
  return builds;
}

base::ExitCode install_on_hosts(const cli::RunOptions& options,
                                const std::filesystem::path& other_build) {
  const recipe::Recipe recipe = read_recipe(options);
  if (recipe.hosts.backend != recipe::BackendKind::ssh) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has no hosts that ssh reaches: hosts.backend is not \"ssh\"",
                          options.recipe.string());
  }
  const std::vector<hosts::Build> builds = builds_here(other_build);
  std::vector<recipe::RecipeHost> hosts = recipe.hosts.list;
  std::ranges::copy(recipe.hosts.spare, std::back_inserter(hosts));
  InstallReport report(hosts.size());
  std::atomic<std::size_t> next = 0;
  {
    // In a scope of its own: its end joins them, and only then is the report complete.
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min(kConcurrentHosts, hosts.size()); ++i) {
      workers.emplace_back([&] {
        for (std::size_t host = next++; host < hosts.size(); host = next++) {
          install_one({hosts[host].name, recipe.hosts.ssh_config}, host, builds, report);
        }
      });
    }
  }
  return report.first_failure();
}

}  // namespace

base::ExitCode perform(const cli::InstallFlags& flags) {
  return install_on_hosts(flags.run, flags.other_build);
}

}  // namespace strait::compute
