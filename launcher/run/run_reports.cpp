#include "launcher/run/run_reports.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <utility>

#include "framework/trace/merge_traces.h"
#include "launcher/base/errors.h"
#include "launcher/base/run_file_names.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;

void collect_traces(const RunDirectory& directory, const plan::Plan& plan) {
  std::vector<fs::path> files;
  for (const plan::Plan::Process& process : plan.processes) {
    const fs::path file = directory.path() / base::trace_file(process.name.text());
    if (fs::exists(file)) files.push_back(file);
  }
  if (!files.empty()) trace::merge_traces(files, directory.path() / base::kTraceFile);
}

}  // namespace

RunReports::RunReports(const RunDirectory& directory, plan::Plan plan, const ModelQuestions& model)
    : directory_(directory),
      plan_(std::move(plan)),
      model_(model),
      thread_([this] { write_reports(); }) {}

RunReports::~RunReports() { stop(); }

void RunReports::stop() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunReports::checkpointed(store::Step /*step*/) {
  {
    const MutexLock lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void RunReports::write_reports() {
  // Of this thread only. Processes that train may need all cores of this machine.
  constexpr int kLowest = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (!wanted_ && !ending_) changed_.wait(mutex_);
      if (ending_) return;
      wanted_ = false;
    }
    try {
      // Another run may be in the directory now.
      if (directory_.in_place()) model_.write_report(directory_.path(), plan_);
    } catch (const std::exception& error) {
      spdlog::warn("no report: {}", base::describe_failure(error).text);
    }
  }
}

std::vector<Event> RunReports::finish() {
  stop();
  std::vector<Event> failures;
  const auto attempt = [&failures](const char* what, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      failures.push_back(
          {"report_failed", fmt::format("{}: {}", what, base::describe_failure(error).text)});
    }
  };
  attempt("no trace", [this] { collect_traces(directory_, plan_); });
  attempt("no report", [this] { model_.write_report(directory_.path(), plan_); });
  return failures;
}

}  // namespace strait::run
