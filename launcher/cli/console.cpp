#include "launcher/cli/console.h"

#include "launcher/cli/metric_text.h"
#include "launcher/run/run_events.h"

namespace strait::cli {
namespace {

using Style = ConsoleOptions::Style;
using Json = nlohmann::ordered_json;

// Erases to the end of the line, and of the screen.
constexpr const char* kLineEnd = "\x1b[K";
constexpr const char* kRestOfScreen = "\x1b[J";
constexpr auto kQuietLive = std::chrono::seconds(2);
constexpr auto kQuietPlain = std::chrono::seconds(30);
// Until the first step, and after the last one, nothing else shows that something is done.
constexpr auto kQuietPlainWithoutSteps = std::chrono::seconds(5);
constexpr auto kDrawBlockEvery = std::chrono::milliseconds(100);
}  // namespace

ConsoleOptions ConsoleOptions::of_stdout(bool as_json, const std::string& color) {
  ConsoleOptions options;
  options.colors = base::wants_colors(color);
  if (base::is_live_terminal()) options.style = Style::live;
  if (as_json) options.style = Style::json;
  options.columns = [usual = options.columns]() -> std::size_t {
    const std::size_t columns = base::terminal_columns();
    return columns > 0 ? columns : usual();
  };
  return options;
}

Console::Console(base::TextSink& sink, ConsoleOptions options)
    : sink_(sink), options_(std::move(options)), said_(options_.now()) {}

Console::~Console() { erase(); }

std::string Console::folded(const std::string& text) const {
  return is(Style::live) ? folded_text(text, options_.columns()) : text;
}

void Console::lasting(const std::string& line, base::Tone tone) {
  const bool live = is(Style::live);
  std::istringstream lines(folded(base::printable(line) + '\n'));
  for (std::string text; std::getline(lines, text);) {
    text = base::painted(text, tone, options_.colors);
    sink_.write(live ? fmt::format("\r{}{}\n{}", text, kLineEnd, kRestOfScreen) : text + "\n",
                false);
  }
  said_ = options_.now();
  if (std::exchange(drawn_, false)) draw();
}

void Console::draw() {
  // The last column stays free: some terminals wrap when it is written.
  const std::size_t columns = std::max<std::size_t>(options_.columns(), 2) - 1;
  view_.losses = losses_;
  std::string text = "\r";
  const std::vector<std::string> lines = live_block(view_, columns);
  if (lines.empty()) return;
  for (const std::string& line : lines) {
    text += (text.size() > 1 ? "\n" : "") + in_tones(line, options_.colors) + kLineEnd;
  }
  text += kRestOfScreen;
  if (lines.size() > 1) text += fmt::format("\x1b[{}A", lines.size() - 1);
  sink_.write(text + "\r", true);
  printed_ = options_.now();
  drawn_ = true;
}

void Console::erase() {
  if (std::exchange(drawn_, false)) sink_.write(std::string("\r") + kRestOfScreen, false);
}

void Console::json(const std::string& event, const Json& fields) {
  Json object = {{"event", event}};
  object.update(fields);
  sink_.write(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", false);
}

void Console::json(const run::RunEvent& event) { json(event.name, event.fields); }

void Console::plan(const std::string& text, const std::string& plan_json) {
  if (is(Style::json)) return json("plan", {{"plan", Json::parse(plan_json)}});
  const Json plan = Json::parse(plan_json);
  first_step_seconds_ =
      std::max(plan.value("step_seconds", 0.0), plan.value("first_epoch_step_seconds", 0.0));
  sink_.write(folded(text + (text.ends_with('\n') ? "" : "\n")), false);
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
  view_.step = store::number(from);
  view_.steps = store::number(to);
  training_since_ = options_.now();
  lasting(from == store::Step{}
              ? "training " + base::counted(store::number(to), "step")
              : fmt::format("training steps {} to {}", store::number(from) + 1, store::number(to)));
}

void Console::reports(const std::vector<run::ProcessReport>& processes) {
  const auto now = options_.now();
  rates_.add(processes, now);
  const auto quiet = now - said_;
  const bool live = is(Style::live);
  if (is(Style::json)) return;
  const bool steps = view_.step > store::number(from_) && view_.step < view_.steps;
  const auto plain = steps ? kQuietPlain : kQuietPlainWithoutSteps;
  if (quiet < (live ? kQuietLive : plain)) {
    if (drawn_) draw();  // the window may have another width now
    return;
  }
  const std::string line = waiting_text(std::chrono::duration<double>(quiet).count()) +
                           fmt::format("{}", fmt::join(doing(processes), " · "));
  if (!live) return lasting(line);
  view_.doing = line;
  draw();
}

std::string Console::waiting_text(double seconds) const {
  if (view_.steps > 0 && view_.step == view_.steps) {
    const bool saved = view_.checkpoint == view_.step;
    return fmt::format("{}, {}: ", saved ? "ending" : "last checkpoint", clock_text(seconds));
  }
  const bool first = view_.steps > 0 && view_.step == store::number(from_);
  if (!first) return is(Style::live) ? clock_text(seconds) + ": " : "";
  const auto since = std::chrono::duration<double>(options_.now() - training_since_).count();
  const std::string estimate =
      first_step_seconds_ > 0
          ? fmt::format(" of about {} by the plan", clock_text(first_step_seconds_))
          : "";
  return fmt::format("first step, {}{}: ", clock_text(since), estimate);
}

std::vector<std::string> Console::doing(const std::vector<run::ProcessReport>& processes) const {
  std::vector<std::string> all;
  for (const run::ProcessReport& report : processes) {
    if (!report.progress) {
      all.push_back(report.process.describe() + " is starting");
    } else if (!report.progress->waits_for.empty()) {
      all.push_back(report.progress->waits_for);
    } else {
      all.push_back(fmt::format("{}: {}", report.process.describe(), report.progress->phase));
    }
  }
  return all;
}

std::string Console::step_text(const run::StepLine& line) const {
  std::vector<std::string> parts;
  parts.push_back(fmt::format("step {}/{}", store::number(line.step), store::number(to_)));
  for (auto labels : {step_labels<trace::StepMetrics>(line, false), rates_.labels(),
                      step_labels<trace::StepMetrics>(line, true)}) {
    std::ranges::move(labels, std::back_inserter(parts));
  }
  const auto left = line.step == to_ ? std::nullopt : remaining_.seconds();
  if (left) parts.push_back("ETA " + clock_text(*left));
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
  view_.step = store::number(line.step);
  held_back_ = step_text(line);
  is(Style::plain) ? plain_step(line, held_back_) : live_step(line);
}

void Console::live_step(const run::StepLine& line) {
  const auto now = options_.now();
  said_ = now;
  losses_.push_back(line.loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  view_.eta_seconds = remaining_.seconds();
  view_.doing.clear();
  view_.labels = step_labels<trace::StepMetrics>(line, false);
  if (!evaluation_.empty()) view_.labels.push_back(evaluation_);
  for (auto labels : {step_labels<trace::StepMetrics>(line, true), rates_.labels()}) {
    std::ranges::move(labels, std::back_inserter(view_.labels));
  }
  std::pair<std::uint64_t, std::string> most;
  for (const auto& [process, metrics] : line.processes) {
    most =
        std::max(most, {std::max(metrics.gpu_memory_bytes, metrics.memory_bytes), process.text()});
  }
  if (most.first > 0) {
    view_.labels.push_back(fmt::format("memory {} ({})", base::byte_text(most.first), most.second));
  }
  if (!printed_ || now - *printed_ >= kDrawBlockEvery || line.step == to_) draw();
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
  evaluation_ = fmt::format("evaluation {:.4g}", evaluated.loss);
  std::string over = base::counted(evaluated.tokens, evaluated.margin ? "record" : "token");
  if (evaluated.margin) over += fmt::format(", margin {:.4g}", *evaluated.margin);
  if (evaluated.accuracy) over += fmt::format(", accuracy {:.3g}", *evaluated.accuracy);
  lasting(fmt::format("evaluation at step {}: loss {:.4g} over {}", store::number(evaluated.step),
                      evaluated.loss, over));
}

void Console::checkpointed(store::Step step) {
  if (is(Style::json)) return json(run::checkpoint_event(step));
  view_.checkpoint = store::number(step);
  lasting(fmt::format("checkpoint at step {}", store::number(step)), base::Tone::faint);
}

void Console::checkpoint_failed(store::Step step, const std::string& text) {
  if (is(Style::json)) return json(run::checkpoint_failed_event(step, text));
  lasting(fmt::format("warning: checkpoint at step {} failed, training continues: {}",
                      store::number(step), text),
          base::Tone::caution);
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
                      store::number(gone.step), gone.why, fmt::join(gone.remaining, ", ")),
          base::Tone::caution);
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
  lasting(why.empty() ? "the run moves again" : "nothing moves: " + why,
          why.empty() ? base::Tone::good : base::Tone::caution);
}

void Console::stopping(bool now) {
  if (is(Style::json)) return json(run::stopping_event(now));
  lasting(now ? "stopping immediately"
              : "stopping after this step and its checkpoint; Ctrl-C again stops immediately",
          base::Tone::caution);
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

}  // namespace strait::cli
