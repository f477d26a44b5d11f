#include "launcher/run/run_recorder.h"

#include <spdlog/spdlog.h>

#include "framework/fields/bounded_json.h"
#include "framework/trace/metric_json.h"
#include "launcher/base/machine.h"
#include "launcher/run/run_events.h"
#include "launcher/run/run_status.h"

namespace strait::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostUnwritten = 1000;  // events

// The metrics of a step that status.json repeats.
std::vector<std::string> status_metrics() {
  std::vector<std::string> keys;
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    if (one.info.status != trace::Status::none) keys.emplace_back(one.info.key);
  });
  return keys;
}

Json describe(const ProcessReport& report) {
  Json process = {{"process", report.process.text()},
                  {"host", report.host},
                  {"pid", report.pid},
                  {"silent_seconds", report.silent_seconds}};
  if (!report.progress) return process;
  const Progress& progress = *report.progress;
  process["step"] = store::number(progress.step);
  process["micro_batch"] = progress.micro_batch < 0 ? Json() : Json(progress.micro_batch);
  process["phase"] = progress.phase;
  process["waits_for"] = progress.waits_for;
  process["waited_seconds"] = progress.waited_seconds;
  process["links"] = Json::array();
  for (const LinkTraffic& link : progress.links) {
    process["links"].push_back({{"name", link.name},
                                {"peer", link.peer},
                                {"sent_bytes", link.sent_bytes},
                                {"received_bytes", link.received_bytes}});
  }
  return process;
}

// The status of earlier launches; an empty object: none.
Json former_status(const RunDirectory& directory) {
  try {
    const auto status = read_run_status(directory.path());
    if (status && status->is_object()) return *status;
  } catch (const base::UserError&) {
    return Json::object();  // this launch replaces a damaged file
  }
  return Json::object();
}

Json event_line(const RunEvent& event) {
  Json line = {{"time", base::unix_time()}, {"event", event.name}};
  line.update(event.fields);
  return line;
}

// Appends the event, if any, and changes status.json.
void record_between(const RunDirectory& directory, const RunEvent* event,
                    const std::function<void(Json&)>& change) {
  try {
    if (event != nullptr) trace::JsonLines(directory.events()).append(event_line(*event));
  } catch (const trace::TraceError& error) {
    spdlog::error("{}", error.what());
  }
  try {
    Json status = read_run_status(directory.path()).value_or(nlohmann::json::object());
    change(status);
    status["updated"] = base::unix_time();
    replace_run_status(directory.status(), status);
  } catch (const base::UserError& error) {
    spdlog::error("{}", error.what());
  } catch (const nlohmann::json::exception& error) {
    spdlog::error("{} was not written by this build: {}", directory.status().string(),
                  fields::plain_json_reason(error.what()));
  }
}

}  // namespace

void record_event(const RunDirectory& directory, const Event& event) {
  try {
    const RunEvent line = stage_event("the launcher", event);
    trace::JsonLines(directory.events()).append(event_line(line));
  } catch (const trace::TraceError& error) {
    spdlog::error("{}", error.what());
  }
}

void record_restarting(const RunDirectory& directory) {
  record_between(directory, nullptr, [](Json& status) {
    status["state"] = "restarting";
    status["outcome"] = nullptr;
  });
}

void record_restart(const RunDirectory& directory, const Restart& restart) {
  const RunEvent event = event_of(restart);
  record_between(directory, &event, [&](Json& status) {
    const Json before = status.value("restarts", Json::object());
    status["restarts"] = {{"count", before.value("count", std::int64_t{0}) + 1},
                          {"last", event.fields}};
  });
}

void record_end(const RunDirectory& directory, const Outcome& outcome) {
  const RunEvent event = event_of(outcome);
  record_between(directory, &event, [&](Json& status) {
    status["state"] = "ended";
    status["outcome"] = event.fields;
  });
}

RunRecorder::RunRecorder(const RunDirectory& directory, const std::string& run_id,
                         std::uint32_t generation, store::Step from, store::Step to)
    : status_path_(directory.status()),
      metrics_path_(directory.metrics()),
      metrics_(metrics_path_),
      events_(directory.events()),
      status_(std::make_unique<Json>(Json{{"run", run_id},
                                          {"generation", generation},
                                          {"state", "starting"},
                                          {"updated", 0.0},
                                          {"step", store::number(from)},
                                          {"steps", store::number(to)}})) {
  const Json former = former_status(directory);
  // Metrics of the former launch still describe this run if it resumes at the step that they belong
  // to.
  const bool same = former.value("step", Json()) == store::number(from);
  for (const std::string& key : status_metrics()) {
    (*status_)[key] = same ? former.value(key, Json()) : Json();
  }
  status_->update({{"eta_seconds", nullptr},
                   {"checkpoint", from > store::Step{} ? Json(store::number(from)) : Json()},
                   {"processes", Json::array()},
                   {"boundaries", Json::array()},
                   {"sync", Json::array()},
                   {"slow", Json::array()},
                   {"parts", Json::array()},
                   {"outcome", nullptr}});
  // Restarts stay listed as long as the run continues.
  if (former.contains("restarts")) (*status_)["restarts"] = former.at("restarts");
  append({"started", {{"run", run_id}, {"generation", generation}}});
  write_status();
}

RunRecorder::~RunRecorder() = default;

void RunRecorder::run_or_warn(const std::function<void()>& work) {
  try {
    work();
  } catch (const trace::TraceError& error) {
    // Warned once: a full disk would otherwise fill the log every second.
    if (!warned_) spdlog::error("{}. The run continues without it", error.what());
    warned_ = true;
  }
}

void RunRecorder::append(const RunEvent& event) {
  if (unwritten_.size() == kMostUnwritten) unwritten_.erase(unwritten_.begin());
  unwritten_.push_back(event_line(event));
  run_or_warn([this] {
    for (; !unwritten_.empty(); unwritten_.erase(unwritten_.begin()))
      events_.append(unwritten_.front());
  });
}

void RunRecorder::write_status() {
  (*status_)["updated"] = base::unix_time();
  if (replace_run_status(status_path_, *status_)) return;
  if (!warned_)
    spdlog::error("cannot write {}. The run continues without it", status_path_.string());
  warned_ = true;
}

void RunRecorder::connected(const Hello& hello) {
  append({"connected",
          {{"process", hello.process.text()},
           {"host", hello.host},
           {"pid", hello.pid},
           {"build", hello.build}}});
}

void RunRecorder::training(store::Step from, store::Step to) {
  // Reopened: a resume has just replaced the file by one without the later steps.
  run_or_warn([this] { metrics_.emplace(metrics_path_); });
  remaining_ = RemainingTime(to);
  (*status_)["state"] = "training";
  (*status_)["step"] = store::number(from);
  (*status_)["steps"] = store::number(to);
  write_status();
  append(training_event(from, to));
}

void RunRecorder::reports(const std::vector<ProcessReport>& processes) {
  Json list = Json::array();
  for (const ProcessReport& report : processes) list.push_back(describe(report));
  (*status_)["processes"] = std::move(list);
  write_status();
}

void RunRecorder::step(const StepLine& line) {
  const Json fields = to_json(line);
  if (metrics_) run_or_warn([&] { metrics_->append(fields); });
  remaining_.add(line.step, line.seconds);
  const auto left = remaining_.seconds();
  // Not written here: a step may take a millisecond, and reports() comes every second.
  for (const char* key : {"step", "boundaries", "sync"}) (*status_)[key] = fields.at(key);
  for (const std::string& key : status_metrics()) (*status_)[key] = fields.at(key);
  (*status_)["eta_seconds"] = left ? Json(*left) : Json(nullptr);
}

void RunRecorder::evaluated(const Evaluated& evaluated) { append(event_of(evaluated)); }

void RunRecorder::checkpointed(store::Step step) {
  append(checkpoint_event(step));
  (*status_)["checkpoint"] = store::number(step);
}

// Without an event: there may be one every second.
void RunRecorder::in_memory(store::Step step, const std::string& place) {
  (*status_)["memory"] = {{"step", store::number(step)}, {"place", place}};
}

void RunRecorder::checkpoint_failed(store::Step step, const std::string& text) {
  append(checkpoint_failed_event(step, text));
}

void RunRecorder::event(const std::string& source, const Event& event) {
  append(stage_event(source, event));
}

void RunRecorder::replicas_absent(const ReplicasAbsent& absent) {
  (*status_)["replicas"] = absent.present;
  for (const std::uint32_t replica : absent.absent) {
    (*status_)["left"][std::to_string(replica)] = {{"text", "absent since the run began"}};
  }
  write_status();
  append(event_of(absent));
}

void RunRecorder::replica_left(const ReplicaLeft& gone) {
  (*status_)["replicas"] = gone.remaining;
  (*status_)["left"][std::to_string(gone.replica)] = {{"step", store::number(gone.step)},
                                                      {"text", gone.why}};
  write_status();
  append(event_of(gone));
}

void RunRecorder::rejoin_attempted(const RejoinAttempt& attempt) {
  const bool fails = !attempt.failure.empty();
  if (!fails) ++rejoins_;
  (*status_)["rejoins"][std::to_string(attempt.replica)] = {
      {"number", rejoins_}, {"state", fails ? "failed" : "rejoining"}, {"text", attempt.failure}};
  write_status();
  append(event_of(attempt));
}

void RunRecorder::replica_joined(const ReplicaJoined& joined) {
  (*status_)["replicas"] = joined.replicas;
  (*status_)["left"].erase(std::to_string(joined.replica));
  // Kept even if the replica leaves again, because `strait replica` may poll later.
  (*status_)["rejoins"][std::to_string(joined.replica)] = {
      {"number", rejoins_}, {"state", "joined"}, {"step", store::number(joined.step)}};
  write_status();
  append(event_of(joined));
}

void RunRecorder::standing_still(const std::string& why) {
  (*status_)["standstill"] = why.empty() ? Json(nullptr) : Json(why);
  write_status();
  append(standstill_event(why));
}

void RunRecorder::slow_parts(const std::vector<std::string>& sentences) {
  (*status_)["slow"] = sentences;
  write_status();
}

// Not written here, as in step().
void RunRecorder::parts_measured(const std::vector<PartSeconds>& parts) {
  (*status_)["parts"] = trace::metrics_list(parts);
}

void RunRecorder::stopping(bool now) {
  (*status_)["state"] = "stopping";
  write_status();
  append(stopping_event(now));
}

void RunRecorder::ended(const Outcome& outcome) {
  const RunEvent event = event_of(outcome);
  (*status_)["state"] = "ended";
  (*status_)["step"] = store::number(outcome.step);
  (*status_)["outcome"] = event.fields;
  write_status();
  append(event);
}

}  // namespace strait::run
