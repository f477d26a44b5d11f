#include "launcher/cli/console.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/metric_text.h"
#include "launcher/run/run_events.h"

namespace strait::cli {
namespace {

using Style = ConsoleOptions::Style;
using Json = nlohmann::ordered_json;

// Carriage return and "erase to the end of the line", because a shorter line may follow a longer
// one.
constexpr const char* kLineStart = "\r\x1b[K";
constexpr auto kQuietLive = std::chrono::seconds(2);
constexpr auto kQuietPlain = std::chrono::seconds(30);
constexpr std::int64_t kStayingLines = 20;
constexpr std::size_t kLinksShown = 3;

std::string link_label(const std::string& name) {
  constexpr std::string_view kUsual = "boundary ";
  return name.rfind(kUsual, 0) == 0 ? name.substr(kUsual.size()) : name;
}

}  // namespace

void LinkRates::add(const std::vector<run::ProcessReport>& reports,
                    std::chrono::steady_clock::time_point now) {
  std::map<std::string, double> rates;
  for (const run::ProcessReport& report : reports) {
    if (!report.progress) continue;
    for (const run::LinkTraffic& link : report.progress->links) {
      // Both ends report the link, and each counts what it sent.
      Seen& seen = ends_[{link.name, report.process}];
      const double seconds = std::chrono::duration<double>(now - seen.when).count();
      const bool known = seen.when != std::chrono::steady_clock::time_point{};
      if (known && seconds > 0 && link.sent_bytes >= seen.sent) {
        // A smaller count means that the process restarted.
        constexpr double kBitsPerByte = 8;
        constexpr double kMega = 1e6;
        const auto bytes = static_cast<double>(link.sent_bytes - seen.sent);
        rates[link.name] += bytes * kBitsPerByte / kMega / seconds;
      }
      seen = {link.sent_bytes, now};
    }
  }
  rates_ = std::move(rates);
}

std::vector<std::pair<std::string, double>> LinkRates::megabits() const {
  return {rates_.begin(), rates_.end()};
}

Console::Console(base::TextSink& sink, ConsoleOptions options)
    : sink_(sink), options_(std::move(options)), said_(options_.now()) {}

void Console::lasting(const std::string& line) {
  const std::string text = base::printable(line) + "\n";
  sink_.write(is(Style::live) ? kLineStart + text : text, false);
  said_ = options_.now();
}

void Console::passing(const std::string& line) {
  // The last column stays free: some terminals wrap when it is written.
  sink_.write(kLineStart + base::cut_to_columns(base::printable(line), options_.columns() - 1),
              true);
}

void Console::json(const std::string& event, const Json& fields) {
  Json object = {{"event", event}};
  object.update(fields);
  sink_.write(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", false);
}

void Console::json(const run::RunEvent& event) { json(event.name, event.fields); }

void Console::plan(const std::string& text, const std::string& plan_json) {
  if (is(Style::json)) return json("plan", {{"plan", Json::parse(plan_json)}});
  sink_.write(text + (text.ends_with('\n') ? "" : "\n"), false);
}

void Console::note(const std::string& text) {
  if (is(Style::json)) return json("note", {{"text", text}});
  lasting(text);
}

void Console::finish(const std::vector<std::string>& lines) {
  if (is(Style::json)) return json("farewell", {{"lines", lines}});
  for (const std::string& line : lines) lasting(line);
}

// The reporter of a live console shows at least every two seconds that the run goes on.
void Console::connected(const run::Hello& hello) {
  if (is(Style::json)) {
    return json("connected",
                {{"process", hello.process.text()}, {"host", hello.host}, {"pid", hello.pid}});
  }
  lasting(fmt::format("{} is up on {} (pid {})", hello.process.describe(), hello.host, hello.pid));
}

void Console::training(store::Step from, store::Step to) {
  from_ = from;
  to_ = to;
  remaining_ = run::RemainingTime(to);
  if (is(Style::json)) return json(run::training_event(from, to));
  lasting(from == store::Step{}
              ? "training " + base::counted(store::number(to), "step")
              : fmt::format("training steps {} to {}", store::number(from) + 1, store::number(to)));
}

void Console::reports(const std::vector<run::ProcessReport>& processes) {
  const auto now = options_.now();
  rates_.add(processes, now);
  const auto quiet = now - said_;
  const bool live = is(Style::live);
  if (is(Style::json) || quiet < (live ? kQuietLive : kQuietPlain)) return;
  std::vector<std::string> doing;
  for (const run::ProcessReport& report : processes) {
    if (!report.progress) {
      doing.push_back(report.process.describe() + " is starting");
    } else if (!report.progress->waits_for.empty()) {
      doing.push_back(report.progress->waits_for);
    } else {
      doing.push_back(fmt::format("{}: {}", report.process.describe(), report.progress->phase));
    }
  }
  const std::string line = fmt::format("{}", fmt::join(doing, " · "));
  live ? passing(line) : lasting(line);
}

std::string Console::step_text(const run::StepLine& line) const {
  std::vector<std::string> parts;
  parts.push_back(fmt::format("step {}/{}", store::number(line.step), store::number(to_)));
  for (std::string& label : step_labels<trace::StepMetrics>(line, false)) {
    parts.push_back(std::move(label));
  }
  const auto links = rates_.megabits();
  for (std::size_t i = 0; i < std::min(links.size(), kLinksShown); ++i) {
    parts.push_back(fmt::format("{} {:.1f} Mbit/s", link_label(links[i].first), links[i].second));
  }
  if (links.size() > kLinksShown) {
    parts.push_back(fmt::format("+{} links", links.size() - kLinksShown));
  }
  for (std::string& label : step_labels<trace::StepMetrics>(line, true)) {
    parts.push_back(std::move(label));
  }
  if (const auto left = remaining_.seconds()) parts.push_back("ETA " + clock_text(*left));
  return fmt::format("{}", fmt::join(parts, " · "));
}

void Console::step(const run::StepLine& line) {
  remaining_.add(line.step, line.seconds);
  boundaries_.add(store::number(line.step), line.boundaries);
  sync_.add(store::number(line.step), line.sync);
  if (is(Style::json)) {
    Json fields = to_json(line);
    Json links = Json::object();
    for (const auto& [name, rate] : rates_.megabits()) links[name] = rate;
    fields["link_megabits_per_second"] = std::move(links);
    return json("step", fields);
  }
  const std::string text = step_text(line);
  held_back_ = text;
  if (is(Style::plain)) return plain_step(line, text);
  const std::int64_t done = store::number(line.step) - store::number(from_);
  const std::int64_t every =
      std::max<std::int64_t>(1, (store::number(to_) - store::number(from_)) / kStayingLines);
  if (done == 1 || done % every == 0 || line.step == to_) {
    lasting(text);
    held_back_.clear();
  } else {
    passing(text);
    said_ = options_.now();
  }
}

void Console::plain_step(const run::StepLine& line, const std::string& text) {
  const auto now = options_.now();
  if (printed_ && now - *printed_ < options_.every && line.step != to_) return;
  printed_ = now;
  lasting(text);
  held_back_.clear();
}

void Console::evaluated(const run::Evaluated& evaluated) {
  if (is(Style::json)) return json(run::event_of(evaluated));
  lasting(fmt::format("evaluation at step {}: loss {:.4g} over {}", store::number(evaluated.step),
                      evaluated.loss, base::counted(evaluated.tokens, "token")));
}

void Console::checkpointed(store::Step step) {
  if (is(Style::json)) return json(run::checkpoint_event(step));
  lasting(fmt::format("checkpoint at step {}", store::number(step)));
}

void Console::checkpoint_failed(store::Step step, const std::string& text) {
  if (is(Style::json)) return json(run::checkpoint_failed_event(step, text));
  lasting(fmt::format("warning: checkpoint at step {} failed, training continues: {}",
                      store::number(step), text));
}

void Console::event(const std::string& source, const run::Event& event) {
  if (is(Style::json)) return json(run::stage_event(source, event));
  lasting(fmt::format("{}: {}", source, event.text));
}

void Console::replicas_absent(const run::ReplicasAbsent& absent) {
  if (is(Style::json)) return json(run::event_of(absent));
  lasting(fmt::format("absent replicas: {}; active replicas: {}", fmt::join(absent.absent, ", "),
                      fmt::join(absent.present, ", ")));
}

void Console::replica_left(const run::ReplicaLeft& gone) {
  if (is(Style::json)) return json(run::event_of(gone));
  lasting(fmt::format("replica {} left at step {}: {}; active replicas: {}", gone.replica,
                      store::number(gone.step), gone.why, fmt::join(gone.remaining, ", ")));
}

void Console::rejoin_attempted(const run::RejoinAttempt& attempt) {
  if (is(Style::json)) return json(run::event_of(attempt));
  const bool fails = !attempt.failure.empty();
  lasting(fails ? fmt::format("replica {} did not rejoin: {}", attempt.replica, attempt.failure)
                : fmt::format("replica {} is rejoining", attempt.replica));
}

void Console::replica_joined(const run::ReplicaJoined& joined) {
  if (is(Style::json)) return json(run::event_of(joined));
  lasting(fmt::format("replica {} joined at step {}; active replicas: {}", joined.replica,
                      store::number(joined.step), fmt::join(joined.replicas, ", ")));
}

void Console::standing_still(const std::string& why) {
  if (is(Style::json)) return json(run::standstill_event(why));
  lasting(why.empty() ? "the run moves again" : "nothing moves: " + why);
}

void Console::stopping(bool now) {
  if (is(Style::json)) return json(run::stopping_event(now));
  lasting(now ? "stopping immediately"
              : "stopping after this step and its checkpoint; Ctrl-C again stops immediately");
}

void Console::restarting(const run::Restart& restart) {
  if (is(Style::json)) return json(run::event_of(restart));
  for (const std::string& move : restart.moves) lasting(move);
  const bool resumes = restart.from != store::Step{};
  lasting(fmt::format(
      "restart {} of {}, generation {}: {}", restart.number, restart.limit, restart.generation,
      resumes ? fmt::format("going on from the checkpoint of step {}", store::number(restart.from))
              : std::string("from the beginning, because there is no complete checkpoint")));
}

void Console::ended(const run::Outcome& outcome) {
  if (is(Style::json)) return json(run::event_of(outcome));
  if (!held_back_.empty()) lasting(std::exchange(held_back_, {}));
  table(kBoundaryTraffic, boundaries_);
  table(kSyncTraffic, sync_);
  if (outcome.code != base::ExitCode::done) {
    failure(outcome);
  } else if (outcome.stopped) {
    lasting(fmt::format("stopped on request after step {} of {}", store::number(outcome.step),
                        store::number(to_)));
  }
}

template <class S>
void Console::table(const char* what, const trace::MetricTotals<S>& totals) {
  const std::vector<std::string> rows =
      metric_table(totals.all(), is(Style::live) ? options_.columns() : 0);
  if (rows.empty()) return;
  lasting(sums_title(what, totals));
  for (const std::string& row : rows) lasting(row);
}

void Console::failure(const run::Outcome& outcome) {
  const char* meaning = base::meaning(outcome.code);
  lasting("");
  lasting(fmt::format("strait: {}", outcome.cause));
  const std::string saved = outcome.checkpoint ? fmt::format("last checkpoint: step {}",
                                                             store::number(*outcome.checkpoint))
                                               : "no checkpoint since this start";
  lasting(fmt::format("  exit code {} ({}), {} done; {}", number(outcome.code),
                      meaning ? meaning : "?", base::counted(store::number(outcome.step), "step"),
                      saved));
  if (!outcome.log_tail.empty()) {
    lasting(fmt::format("  the last {} of its log:",
                        base::counted(std::ssize(outcome.log_tail), "line")));
    for (const std::string& line : outcome.log_tail) lasting("    | " + line);
  }
  if (!outcome.followers.empty()) {
    lasting("  failures that followed:");
    for (const std::string& line : outcome.followers) lasting("    " + line);
  }
}

}  // namespace strait::cli
