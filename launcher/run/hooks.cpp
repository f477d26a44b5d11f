#include "launcher/run/hooks.h"

#include "launcher/run/run_recorder.h"

namespace strait::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHooksLog = "hooks";
constexpr auto kHookLimit = std::chrono::hours(1);     // after the end of the run
constexpr auto kNoteAfter = std::chrono::seconds(2);   // most commands take less
constexpr auto kLook = std::chrono::milliseconds(50);  // a Ctrl-C is noticed at once by a user

}  // namespace

std::vector<std::string> hook_words(const HookCall& call, const std::string& run,
                                    const std::filesystem::path& directory) {
  return {
      "env", "STRAIT_RUN=" + run,
      "STRAIT_RUN_DIRECTORY=" + std::filesystem::absolute(directory).string(),
      "STRAIT_EVENT=" + call.name, fmt::format("STRAIT_STEP={}", number(call.step)),
      fmt::format("STRAIT_EXIT_CODE={}", number(call.code)), "STRAIT_CAUSE=" + call.cause, "sh",
      "-c",
      // Its input is a stream that a stage would read its job from. The launcher holds the other
      // end: where it is gone, nobody waits for the command, and it ends with its processes.
      "exec 3<&0 < /dev/null; { cat <&3 > /dev/null; kill -KILL 0; } & "
      "exec 3<&-; exec sh -c \"$0\"",
      call.command};
}

Hooks::Hooks(const RunDirectory& directory, const recipe::Recipe& recipe, RunObserver& observer)
    : directory_(directory), run_(recipe.name), on_(recipe.on), observer_(observer) {}

void Hooks::checkpointed(store::Step step) {
  if (on_.checkpoint.empty()) return;
  next_ = step;
  poll();
}

void Hooks::reports(const std::vector<ProcessReport>& /*processes*/) { poll(); }

void Hooks::start(HookCall call) {
  call_ = std::move(call);
  base::Launch launch{
      .process = net::ProcessName::coordinator(), .argv = {}, .input = {}, .log = {}};
  launch.argv = hook_words(call_, run_, directory_.path());
  launch.log = directory_.log(kHooksLog);
  try {
    process_ = base::LocalBackend().start(launch);
  } catch (const base::UserError& error) {
    fail(error.what());
  }
}

void Hooks::poll() {
  if (process_) {
    const auto status = process_->exit_status();
    if (!status) return;
    process_.reset();
    // Codes of others do not have the meanings of ours.
    if (status->code != 0) {
      fail(status->code ? fmt::format("it ended with code {}", *status->code) : status->sentence());
    }
  }
  const std::optional<store::Step> step = std::exchange(next_, std::nullopt);
  if (step) start({"checkpoint", on_.checkpoint, *step, base::ExitCode::done, ""});
}

void Hooks::fail(const std::string& how) {
  const Event event{"hook_failed",
                    fmt::format("on.{} of step {} failed: {}; what it wrote is in {}", call_.name,
                                number(call_.step), how, directory_.log(kHooksLog).string())};
  record_event(directory_, event);
  observer_.event("the launcher", event);
}

void Hooks::wait(const std::atomic<int>& stops) {
  const int before = stops.load();
  const auto began = Clock::now();
  bool noted = false;
  for (poll(); process_; poll()) {
    const auto now = Clock::now();
    if (stops.load() > before || now - began >= kHookLimit) {
      process_.reset();  // kills it
      fail(stops.load() > before ? "it was ended on request" : "it was ended after an hour");
      continue;
    }
    if (!noted && now - began >= kNoteAfter) {
      observer_.note(fmt::format("waiting for on.{}; Ctrl-C ends it", call_.name));
      noted = true;
    }
    process_->wait_until(now + kLook);
  }
}

void Hooks::finish(const Outcome& outcome, const std::atomic<int>& stops) {
  wait(stops);
  const bool failed =
      outcome.code != base::ExitCode::done && outcome.code != base::ExitCode::interrupted;
  const auto call = [&](const char* name, const std::string& command) {
    if (command.empty()) return;
    start({name, command, outcome.step, outcome.code, outcome.cause});
    wait(stops);
  };
  if (failed) call("failure", on_.failure);
  call("end", on_.end);
}

}  // namespace strait::run
