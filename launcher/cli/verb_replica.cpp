#include <poll.h>

#include <numeric>

#include "launcher/cli/verbs.h"
#include "launcher/run/run_directory.h"
#include "launcher/run/run_status.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// status.json is the only way to see a live run from another process, so it is polled.
constexpr int kPollMilliseconds = 100;

// The replicas in status.json, and the last attempt of one of them to rejoin.
struct Replicas {
  std::vector<std::uint32_t> active;
  int attempt = 0;          // number of that attempt; 0: there was none
  std::string state;        // rejoining, joined or failed
  std::string failed;       // why it could not rejoin
  std::int64_t joined = 0;  // the step at which it joined
  std::string left;         // why it left; empty: it is active

  bool has(std::uint32_t replica) const { return std::ranges::count(active, replica) > 0; }
};

Replicas replicas_in(const json& status, std::int64_t all, std::uint32_t replica) {
  Replicas known;
  if (status.contains("replicas")) {
    known.active = status.at("replicas").get<std::vector<std::uint32_t>>();
  } else {
    known.active.resize(static_cast<std::size_t>(all));
    std::iota(known.active.begin(), known.active.end(), 0U);
  }
  const std::string name = std::to_string(replica);
  const json none = json::object();
  const json left = status.value("left", none).value(name, none);
  known.left = left.value("text", "");
  const json rejoin = status.value("rejoins", none).value(name, none);
  known.attempt = rejoin.value("number", 0);
  known.state = rejoin.value("state", "");
  known.failed = rejoin.value("text", "");
  known.joined = rejoin.value("step", std::int64_t{0});
  return known;
}

Replicas replicas_of(const fs::path& run, std::int64_t all, std::uint32_t replica) {
  try {
    return replicas_in(run::read_run_status(run).value_or(json::object()), all, replica);
  } catch (const json::exception& error) {
    run::refuse_foreign_status(run, error);
  }
}

// Whether the replica has rejoined; false while the attempt is in progress. UserError: it failed.
bool has_rejoined(const fs::path& run, std::uint32_t replica, int attempt, const Replicas& known) {
  if (known.has(replica)) return true;
  if (known.attempt <= attempt || known.state == "rejoining") return false;
  if (known.state == "joined") {
    throw base::UserError(base::ExitCode::peer_lost,
                          "replica {} joined at step {} and has left again: {}", replica,
                          known.joined, known.left);
  }
  throw base::UserError(base::ExitCode::peer_lost, "replica {} could not rejoin {}: {}", replica,
                        run.string(), known.failed);
}

plan::Plan plan_of_live(const fs::path& run) {
  if (!run::RunDirectory::live(run)) run::refuse_not_live(run);
  return read_run(run).plan;
}

void check_can_leave(const fs::path& run, const plan::Plan& plan, std::uint32_t replica,
                     const Replicas& known) {
  const auto refuse = [&](const std::string& why) {
    throw base::UserError(base::ExitCode::bad_input, "replica {} cannot leave {}: {}", replica,
                          run.string(), why);
  };
  if (!known.has(replica)) {
    refuse(fmt::format("it is not active; active replicas: {}", fmt::join(known.active, ", ")));
  }
  if (known.active.size() == 1) {
    refuse("it is the last one; end the run with: " + base::strait_command("stop", run));
  }
  if (plan.recipe.sync.on_loss == recipe::LossRule::stop) {
    refuse(fmt::format(
        "its sync.on_loss is \"stop\", so the run cannot continue without it; let it: {} "
        "&& {} --set sync.on_loss=continue",
        base::strait_command("stop", run), base::strait_command("resume", run)));
  }
}

void check_can_rejoin(const fs::path& run, const plan::Plan& plan, std::uint32_t replica,
                      const Replicas& known) {
  const auto refuse = [&](const std::string& why) {
    throw base::UserError(base::ExitCode::bad_input, "replica {} cannot rejoin {}: {}", replica,
                          run.string(), why);
  };
  if (known.has(replica)) {
    refuse(fmt::format("it is active; active replicas: {}", fmt::join(known.active, ", ")));
  }
  if (replica >= plan.recipe.pipeline.replicas) {
    refuse(fmt::format("its replicas are 0 to {}", plan.recipe.pipeline.replicas - 1));
  }
  if (known.state == "rejoining") refuse("it is rejoining already");
}

// Polls until done(). UserError: the run ended, or the timeout has passed.
void wait_until(const fs::path& run, std::chrono::seconds timeout,
                const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    if (!run::RunDirectory::live(run)) {
      throw base::UserError(base::ExitCode::bad_input, "{} has ended", run.string());
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      throw base::UserError(base::ExitCode::stalled, "timed out after {} s; see: {}",
                            timeout.count(), base::strait_command("status", run));
    }
    ::poll(nullptr, 0, kPollMilliseconds);
  }
}

}  // namespace

base::ExitCode stop_replica(const fs::path& run, std::uint32_t replica,
                            std::chrono::seconds timeout) {
  const plan::Plan plan = plan_of_live(run);
  const auto read = [&] { return replicas_of(run, plan.recipe.pipeline.replicas, replica); };
  check_can_leave(run, plan, replica, read());
  run::request_replica(run::ReplicaRequest::leave, run, replica);
  wait_until(run, timeout, [&] { return !read().has(replica); });
  const Replicas left = read();
  fmt::print("replica {} has left; active replicas: {}\n", replica, fmt::join(left.active, ", "));
  return base::ExitCode::done;
}

base::ExitCode resume_replica(const fs::path& run, std::uint32_t replica,
                              std::chrono::seconds timeout) {
  const plan::Plan plan = plan_of_live(run);
  const auto read = [&] { return replicas_of(run, plan.recipe.pipeline.replicas, replica); };
  const Replicas before = read();
  check_can_rejoin(run, plan, replica, before);
  run::request_replica(run::ReplicaRequest::rejoin, run, replica);
  wait_until(run, timeout, [&] { return has_rejoined(run, replica, before.attempt, read()); });
  fmt::print("replica {} has joined; active replicas: {}\n", replica,
             fmt::join(read().active, ", "));
  return base::ExitCode::done;
}

}  // namespace strait::cli
