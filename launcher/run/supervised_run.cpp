#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/stop_signals.h"
#include "launcher/hosts/ssh_session.h"
#include "launcher/recipe/recipe_io.h"
#include "launcher/run/hooks.h"
#include "launcher/run/replan.h"
#include "launcher/run/restart_policy.h"
#include "launcher/run/resume_point.h"
#include "launcher/run/run_hosts.h"
#include "launcher/run/run_launch.h"
#include "launcher/run/run_recorder.h"

namespace strait::run {
namespace {

using Clock = std::chrono::steady_clock;

// A user who stops the wait before a restart sees it end at once.
constexpr std::chrono::milliseconds kStopPollInterval{50};

// Nullopt, too, while the disk cannot be read: that must not replace how the run ended.
std::optional<store::Step> newest_checkpoint(const RunDirectory& directory) {
  try {
    const std::vector<store::Step> steps = store::committed_steps(directory.path());
    if (!steps.empty()) return steps.front();
  } catch (const store::StoreError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

// As many stages as the other hosts have room for, or fewer where the schedule or the model takes
// no such number.
plan::RunFile run_without(const plan::RunFile& run, const std::set<std::size_t>& lost,
                          const ModelQuestions& model) {
  std::optional<recipe::Recipe> recipe = recipe_without(run.plan, lost);
  if (!recipe) {
    throw base::UserError(base::ExitCode::peer_lost, "no host is left that can take a stage");
  }
  for (;; --recipe->pipeline.stages) {
    try {
      return model.planned_again(run, *recipe, nullptr);
    } catch (const base::UserError& error) {
      if (error.code() != base::ExitCode::bad_input || recipe->pipeline.stages == 1) throw;
    }
  }
}

class SupervisedRun {
 public:
  SupervisedRun(RunDirectory& directory, plan::RunFile run, LaunchOptions options,
                std::optional<store::Step> chosen, RunObserver& observer)
      : directory_(directory),
        run_(std::move(run)),
        options_(std::move(options)),
        chosen_(chosen),
        observer_(observer),
        policy_(restart_limit(run_.plan.recipe.hosts)),
        left_out_(options_.without) {}

  Outcome run() {
    Outcome outcome = launch_until_ended();
    outcome.trained = outcome.trained || trained_;
    return outcome;
  }

 private:
  Outcome launch() {
    LaunchOptions options = options_;
    std::optional<Replan> replan;
    if (run_.plan.recipe.pipeline.replan) {
      replan.emplace(options_.model);
      options.observers.push_back(&*replan);
      options.starting = [&](const plan::RunFile& run) { replan->begin(run); };
      options.end_requests = [&] { return replan->take_request(); };
    }
    Outcome outcome = launch_run(directory_, run_, options);
    other_layout_ = replan ? replan->next() : std::nullopt;
    return outcome;
  }

  Outcome launch_until_ended() {
    Outcome outcome = launch();
    for (;;) {
      for (const std::uint32_t replica : outcome.joined) left_out_.erase(replica);
      if (outcome.trained) chosen_.reset();
      if (outcome.trained || !outcome.left.empty()) left_hosts_ = outcome.left;
      trained_ = trained_ || outcome.trained;
      if (!directory_.in_place()) return outcome;  // another launcher may have it
      const auto decision = policy_.after(outcome, newest_checkpoint(directory_));
      if (decision.exhausted) return give_up(fmt::format("{} restarts", policy_.limit()));
      if (!decision.restart) return attempt_failed_ ? give_up(outcome.cause) : outcome;
      record_restarting(directory_);
      if (!wait(decision.delay)) return stopped();
      try {
        outcome = restart(decision.number, outcome.cause);
        attempt_failed_ = false;
      } catch (const std::exception& error) {
        const base::Failure failure = base::describe_failure(error);
        if (failure.defect) {
          record_end(directory_, failed_attempt(failure));
          throw;
        }
        if (failure.code == base::ExitCode::interrupted) return stopped();
        outcome = failed_attempt(failure);
      }
    }
  }

  // False: the user stopped it.
  bool wait(std::chrono::milliseconds delay) const {
    const auto until = Clock::now() + delay;
    while (signals_.count().load() == 0 && Clock::now() < until) {
      std::this_thread::sleep_for(kStopPollInterval);
    }
    return signals_.count().load() == 0;
  }

  Outcome restart(std::int64_t number, const std::string& cause) {
    observer_.note(fmt::format("restarting by itself ({} of {})", number, policy_.limit()));
    Restart restart{number, policy_.limit(), 0, {}, cause, {}};
    const std::vector<std::string> absent = absent_hosts();
    std::set<std::size_t> lost;
    for (std::size_t i = 0; i < std::min(absent.size(), run_.plan.hosts.size()); ++i) {
      if (!absent[i].empty()) lost.insert(i);
    }
    // First: the shards lie where the former plan says.
    const auto from =
        chosen_ ? chosen_ : good_step_instead(directory_, run_.plan, options_.model, observer_);
    const auto point =
        restart_point(directory_, run_, from, lost, options_.model, options_.rendezvous, observer_);
    options_.without = left_out_;  // replicas that were lost come back where their hosts answer
    const std::set<std::size_t> not_needed = hosts_only_of(run_.plan, left_out_);
    if (!std::ranges::includes(not_needed, lost)) {
      place_again(lost, absent, restart.moves);
    } else if (other_layout_) {
      run_ = std::move(*other_layout_);
      options_.recipe = recipe::recipe_to_toml(run_.plan.recipe);
      restart.moves.emplace_back("layers and hosts are laid out anew");
    }
    other_layout_.reset();
    options_.resume.clear();
    options_.from = {};
    options_.caches = {};
    options_.sync = {};
    if (point) go_on_from(point->checkpoint, run_.plan, options_);
    restart.from = options_.from;
    restart.generation = directory_.generation() + 1;
    record_restart(directory_, restart);
    observer_.restarting(restart);
    return launch();
  }

  // Why each host of the plan, then each spare one, cannot be used now. All are called
  // at the same time, because those that are gone take longest. Those that join are waited for: an
  // engine may start them again.
  std::vector<std::string> absent_hosts() const {
    const recipe::Recipe::Hosts& hosts = run_.plan.recipe.hosts;
    if (options_.rendezvous != nullptr) return wait_for_joining_hosts();
    if (hosts.backend != recipe::BackendKind::ssh) return {};
    std::vector<recipe::RecipeHost> all = hosts.list;
    std::ranges::copy(hosts.spare, std::back_inserter(all));
    std::vector<std::string> absent =
        hosts::call_hosts(hosts, all, Clock::now() + RunHosts::kCallLimit);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (left_hosts_.contains(all[i].name)) absent[i] = "it was asked, there, to leave the run";
    }
    return absent;
  }

  std::vector<std::string> wait_for_joining_hosts() const {
    std::vector<std::string> names;
    for (const plan::Plan::Host& host : run_.plan.hosts) names.push_back(host.name);
    std::vector<std::string> absent =
        options_.rendezvous->wait_for(names, std::chrono::seconds(run_.plan.recipe.hosts.join_wait),
                                      [this] { return signals_.count().load() > 0; });
    std::vector<std::string> spares;
    for (const recipe::RecipeHost& spare : run_.plan.recipe.hosts.spare)
      spares.push_back(spare.name);
    std::ranges::copy(
        options_.rendezvous->wait_for(spares, std::chrono::seconds(0), [] { return true; }),
        std::back_inserter(absent));
    if (signals_.count().load() == 0) return absent;
    throw base::UserError(base::ExitCode::interrupted, "stopped while hosts were waited for");
  }

  // On spare hosts, then without the replicas that have none left to run on, at last with fewer
  // stages.
  void place_again(std::set<std::size_t> lost, const std::vector<std::string>& absent,
                   std::vector<std::string>& moves) {
    plan::RunFile run = run_;
    recipe::Recipe::Hosts& hosts = run.plan.recipe.hosts;
    std::vector<std::string> spares;
    for (std::size_t i = 0; i < hosts.spare.size(); ++i) {
      if (absent[hosts.list.size() + i].empty()) spares.push_back(hosts.spare[i].name);
    }
    const std::set<std::size_t> not_needed = hosts_only_of(run.plan, left_out_);
    std::set<std::size_t> needed = lost;
    for (const std::size_t host : not_needed) needed.erase(host);
    for (const std::size_t host : replacement_order(run.plan, left_out_, needed)) {
      const std::string name = hosts.list[host].name;
      if (spares.empty()) {
        moves.push_back(fmt::format("host {} is left out: {}", name, absent[host]));
        continue;
      }
      const auto spare = std::ranges::find(hosts.spare, spares.front(), &recipe::RecipeHost::name);
      moves.push_back(
          fmt::format("host {} takes the place of {}: {}", spares.front(), name, absent[host]));
      replace_host(run.plan, host, static_cast<std::size_t>(spare - hosts.spare.begin()));
      spares.erase(spares.begin());
      lost.erase(host);
      needed.erase(host);
    }
    const auto gone = replicas_to_leave_out(run.plan, left_out_, needed);
    for (const std::uint32_t replica : gone) {
      options_.without.insert(replica);
      moves.push_back(fmt::format("replica {} is left out until its host answers", replica));
    }
    if (!needed.empty() && gone.empty()) {
      const std::int64_t before = run.plan.recipe.pipeline.stages;
      run = run_without(run, lost, options_.model);
      left_out_.clear();  // all replicas are placed on the hosts that answer
      options_.without.clear();
      const std::int64_t now = run.plan.recipe.pipeline.stages;
      moves.push_back(
          fmt::format("{} {} instead of {}", now, now == 1 ? "stage" : "stages", before));
    }
    options_.recipe = recipe::recipe_to_toml(run.plan.recipe);
    run_ = std::move(run);
  }

  Outcome failed_attempt(const base::Failure& failure) {
    observer_.note(fmt::format("the restart failed: {}", failure.text));
    attempt_failed_ = true;
    Outcome outcome;
    outcome.code = failure.code;
    outcome.cause = failure.text;
    return outcome;
  }

  Outcome give_up(const std::string& why) {
    Outcome first = policy_.first_failure();
    observer_.note(fmt::format(
        "no further restart: {}, and no new checkpoint since this failure: {}", why, first.cause));
    if (!first.checkpoint) first.checkpoint = newest_checkpoint(directory_);
    record_end(directory_, first);
    return first;
  }

  Outcome stopped() {
    Outcome outcome;
    outcome.code = base::ExitCode::interrupted;
    outcome.cause = fmt::format("stopped while it restarted after this failure: {}",
                                policy_.first_failure().cause);
    outcome.stopped = true;
    outcome.checkpoint = newest_checkpoint(directory_);
    if (outcome.checkpoint) outcome.step = *outcome.checkpoint;
    observer_.note(outcome.cause);
    record_end(directory_, outcome);
    return outcome;
  }

  const base::StopSignals signals_;  // between launches, too
  RunDirectory& directory_;
  plan::RunFile run_;
  LaunchOptions options_;
  std::optional<store::Step> chosen_;
  RunObserver& observer_;
  RestartPolicy policy_;
  std::optional<plan::RunFile> other_layout_;  // for which the latest launch has ended
  bool trained_ = false;                       // a launch has applied what the user asked for
  bool attempt_failed_ = false;                // the latest one did not come as far as a launch
  std::set<std::string> left_hosts_;           // of the latest launch that trained
  std::set<std::uint32_t> left_out_;  // replicas, by the user (--without), and not added since
};

}  // namespace

Outcome run_supervised(RunDirectory& directory, const plan::RunFile& run,
                       const LaunchOptions& options, std::optional<store::Step> chosen,
                       RunObserver& observer) {
  const base::StopSignals signals;
  Hooks hooks(directory, run.plan.recipe, observer);
  LaunchOptions hooked = options;
  hooked.observers.push_back(&hooks);
  try {
    Outcome outcome = SupervisedRun(directory, run, hooked, chosen, observer).run();
    hooks.finish(outcome, signals.count());
    return outcome;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    Outcome outcome;
    outcome.code = failure.code;
    outcome.cause = failure.text;
    hooks.finish(outcome, signals.count());
    throw;
  }
}

}  // namespace strait::run
